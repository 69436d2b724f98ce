"""Comparing models: statistics over repeated runs, or over the records of single ones."""
