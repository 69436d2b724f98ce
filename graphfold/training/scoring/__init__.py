"""Scoring: metrics over whole splits, and evaluation of trained models."""
