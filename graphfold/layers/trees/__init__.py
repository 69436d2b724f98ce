"""Cells that run over trees, children first."""
