"""Our server for their clients: one file for each wire, each a `Front`."""
