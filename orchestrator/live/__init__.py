"""Evaluation while training: a policy object of this process, and workers that stay."""
