"""Explanation: contributions of the parts of a graph to its prediction."""
