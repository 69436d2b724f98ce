"""Prediction: a trained model applied to files and to records from Python."""
