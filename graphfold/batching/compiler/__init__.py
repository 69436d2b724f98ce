"""From the code of a cell to the programs that native code runs."""
