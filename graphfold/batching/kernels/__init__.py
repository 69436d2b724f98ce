"""Sums, gathers and products over rows: what the engines compute themselves, device by device."""
