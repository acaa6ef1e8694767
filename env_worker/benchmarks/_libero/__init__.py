"""What the LIBERO benchmark is made of."""
