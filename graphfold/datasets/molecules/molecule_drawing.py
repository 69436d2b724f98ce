"""Drawings of molecules."""

from __future__ import annotations

from typing import Any

from rdkit.Chem.Draw import rdMolDraw2D

from graphfold.datasets.molecules.molecule import read_molecule


def draw_molecule(smiles: str, width: int = 260, height: int = 180) -> str:
    """A molecule as an SVG element.

    Args:
        smiles: a SMILES that can be read.
        width: of the drawing, in pixels.
        height: of the drawing, in pixels.

    Raises:
        RecordError: if RDKit cannot read it.
    """
    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    options: Any = drawer.drawOptions()
    options.clearBackground = False
    options.padding = 0.08
    rdMolDraw2D.PrepareAndDrawMolecule(drawer, read_molecule(smiles))
    drawer.FinishDrawing()
    text: str = drawer.GetDrawingText()
    return text[text.index("<svg") :]
