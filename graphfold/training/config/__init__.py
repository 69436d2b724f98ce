"""Config: from overrides to a checked config, and from a config to objects."""
