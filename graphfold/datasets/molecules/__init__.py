"""Molecules: from a SMILES to RDKit's molecule, and to features of its atoms and bonds."""
