"""What the scripted LIBERO expert is made of."""
