"""The policy of a run: hosted or found, and what its servers did."""
