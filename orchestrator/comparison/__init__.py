"""Two runs or more, side by side: what differs, how sure that is, and how many episodes it takes to be sure."""
