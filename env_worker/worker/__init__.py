"""The worker's processes: the worker itself, its slots, and their way to the policy."""
