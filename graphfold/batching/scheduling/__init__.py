"""The plan of a batch: which nodes run together, as index arrays, made before any cell runs."""
