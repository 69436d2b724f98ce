"""Heads: from the rows of a readout to losses, metrics and predictions."""
