"""One file per benchmark; each is found by being here."""
