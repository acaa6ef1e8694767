"""Other people's wire protocols: their policies as ours, and ours behind their protocols."""
