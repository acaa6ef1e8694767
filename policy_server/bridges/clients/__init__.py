"""Their policies in our runs: one file for each protocol, each a `Peer`."""
