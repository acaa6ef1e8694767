"""What the scripted ALOHA expert is made of."""
