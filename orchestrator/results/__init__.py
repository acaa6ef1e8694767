"""What came of a run: the journal, the numbers, and the files."""
