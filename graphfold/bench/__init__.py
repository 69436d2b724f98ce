"""Benchmarks: each answers one question, against baselines measured in the same run."""
