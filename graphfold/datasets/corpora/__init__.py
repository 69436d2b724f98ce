"""Corpora: data sets by name, their files, and where those come from."""
