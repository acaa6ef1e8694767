"""One go at a run, from its start or resume to its end: brings everything up, and takes it down again."""
