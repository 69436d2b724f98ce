"""Settings of the whole process, which only commands change."""
