"""Readouts: from the states of nodes to the rows that a head gets."""
