"""A run from plan to results: what is to be done, who does it, and what came back."""
