"""Our server for their clients: one file for each protocol, each a `Front`."""
