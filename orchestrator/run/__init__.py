"""What a run lends to whom and when that is over: leases, films, early stops; and who listens."""
