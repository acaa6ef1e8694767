"""Parts of the benchmark gym."""
