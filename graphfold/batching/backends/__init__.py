"""Backends: they run the values of a cell over the groups of a plan, see compiler/backend.py."""
