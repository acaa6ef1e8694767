"""Workers as containers."""
