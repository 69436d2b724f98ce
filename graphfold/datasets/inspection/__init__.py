"""Inspection: data cards, checks of adapters, and hashes of records."""
