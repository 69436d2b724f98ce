"""JSON records: their schema, inferred from a sample, and the nodes of a record."""
