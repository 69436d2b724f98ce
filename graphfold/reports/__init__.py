"""The report of a run, and the tables that commands print."""
