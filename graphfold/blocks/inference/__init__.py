"""Types of what flows between blocks, and how they are found out and checked."""
