"""The sub-commands, one file each: its options and its `run`; the work is done elsewhere."""
