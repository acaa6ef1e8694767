"""Smoke evaluations: one episode, and a look at everything that came of it."""
