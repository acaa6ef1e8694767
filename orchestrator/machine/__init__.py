"""What this machine has: Python environments, sockets, child processes."""
