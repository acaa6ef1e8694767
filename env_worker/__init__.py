"""Runs episodes: benchmarks behind one small interface, and slots that play policies in them."""
