"""Measures the speed of graphfold beside baselines; see `python -m benchmarks --help`."""
