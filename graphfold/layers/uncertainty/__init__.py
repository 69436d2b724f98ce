"""Uncertainty: models and heads around others, which say how sure these are."""
