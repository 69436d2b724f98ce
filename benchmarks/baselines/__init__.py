"""Baselines: libraries, and code written by hand."""
