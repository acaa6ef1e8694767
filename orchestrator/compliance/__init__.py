"""What every launcher is held against; beside the launchers, so that a run does not import it."""
