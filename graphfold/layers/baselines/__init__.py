"""Baselines: models that are fitted at once to numbers of whole graphs, without a network."""
