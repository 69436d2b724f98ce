"""Inspection: what is in data, and whether its adapter keeps its promises."""
