"""Data sets made of episodes: `sparring export`."""
