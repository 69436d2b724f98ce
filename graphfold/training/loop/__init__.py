"""The training loop: one run from start to end."""
