"""Studies: several runs, compared, tuned or swept."""
