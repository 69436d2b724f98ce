"""Kernels written for a cell: what its program computes element by element, in one pass."""
