"""Sweeps: several runs at a command, and what they come to together."""
