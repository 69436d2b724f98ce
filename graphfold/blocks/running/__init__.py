"""From blocks to results: one example at once, or batches on the engine."""
