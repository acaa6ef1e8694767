"""Looks for the mistakes that make a policy fail without a word: `sparring preflight`."""
