"""Splits: which records are trained on, which choose the model, which measure it."""
