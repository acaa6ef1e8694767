"""What people look at after a run: a page, a text for pull requests, and tables for other programs."""
