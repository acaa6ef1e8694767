"""Other people's wires: their policies as ours, and ours behind their wires."""
