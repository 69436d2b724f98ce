"""Fragments of molecules: how they are cut, and the tree above the atoms."""
