"""What `lerobot:CHECKPOINT` is made of."""
