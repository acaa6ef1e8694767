"""One file per way to start workers."""
