"""Compiled cells: traced into programs that one native call per pass and direction runs."""
