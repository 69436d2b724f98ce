"""Programs: the straight-line code that a traced cell runs as."""
