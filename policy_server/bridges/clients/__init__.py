"""Their policies in our runs: one file for each wire, each a `Peer`."""
