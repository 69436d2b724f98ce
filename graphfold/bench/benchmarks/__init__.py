"""The benchmarks, one question each."""
