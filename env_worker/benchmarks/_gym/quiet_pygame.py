"""Imported before pygame, so that it does not greet on standard output, which may be a program's to read."""

import os

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
