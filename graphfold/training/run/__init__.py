"""Run folders and checkpoints: what a run writes, and how it is read again."""
