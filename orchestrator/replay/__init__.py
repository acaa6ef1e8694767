"""Episodes of recorded runs, played again: films, checks, exports."""
