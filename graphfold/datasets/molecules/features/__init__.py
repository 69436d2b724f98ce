"""Features of atoms and bonds: sets of them by name."""
