"""The live page: what is going on in a run, and the runs in a folder, in a browser."""
