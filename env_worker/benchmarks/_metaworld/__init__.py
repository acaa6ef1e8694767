"""What the Meta-World benchmark is made of."""
