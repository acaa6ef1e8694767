"""A learned policy that everyone can reproduce: README.md tells how."""
