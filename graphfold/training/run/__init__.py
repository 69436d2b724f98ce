"""Run folders and checkpoints: the files of a run, written and read."""
