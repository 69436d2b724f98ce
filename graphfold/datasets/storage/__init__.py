"""Storage: graphs as flat columns in files that are mapped into memory."""
