"""Convolutions: cells that run in rounds over the bonds of a molecule."""
