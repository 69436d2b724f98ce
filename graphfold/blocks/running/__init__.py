"""Compiled block models: node types, lowering, cells on the engine, results."""
