"""An episode, from reset to outcome."""
