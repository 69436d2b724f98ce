"""Encoders: from feature columns to one vector per node."""
