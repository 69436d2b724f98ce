"""Adapters: one file format each, from its text to typed DAGs."""
