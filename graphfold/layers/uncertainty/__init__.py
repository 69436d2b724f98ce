"""Uncertainty of predictions: ensembles, conformal intervals, calibrated probabilities."""
