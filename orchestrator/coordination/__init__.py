"""The workers of a run: who is let in, who gets which lease, and what follows of what they say."""
