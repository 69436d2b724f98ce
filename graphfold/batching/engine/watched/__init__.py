"""Watched: what the code of a cell can read apart from tensors, and how it is read again."""
