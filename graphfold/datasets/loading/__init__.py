"""Loading: from settings and stored graphs to planned batches."""
