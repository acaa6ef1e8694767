"""Trackers: listeners that write what comes of a run where experiments are kept, one file each."""
