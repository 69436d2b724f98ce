"""Python source: functions cut out of files, and the identifiers in their syntax trees."""
