"""Drawings of molecules with notes beside atoms and bonds, or coloured by contributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rdkit import Chem

from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.errors import ConfigError

#: Width and height of a drawing, in pixels.
SIZE = 260, 180

#: Blue raises the prediction, orange lowers it: colours that everybody can tell apart.
RAISES, LOWERS = (0.17, 0.42, 0.69), (0.87, 0.42, 0.13)


def draw_molecule(
    smiles: str,
    num_atoms: int = 0,
    notes: Mapping[tuple[int, ...], str] | None = None,
    contributions: Mapping[int, float] | None = None,
) -> str:
    """A molecule as an SVG element, its strongest contribution in full colour.

    Args:
        smiles: a SMILES.
        num_atoms: the atoms of the graph; if they are more than those of the molecule, hydrogens
            are drawn as atoms, too.
        notes: texts beside atoms and bonds: (atom,) or (atom, atom) -> text.
        contributions: atom -> number.

    Raises:
        RecordError: if RDKit cannot read the SMILES.
        ConfigError: if the system lacks what RDKit draws with.
    """
    molecule = read_molecule(smiles)
    if num_atoms > molecule.GetNumAtoms():
        molecule = read_molecule(smiles, explicit_hydrogens=True)
    for atoms, note in (notes or {}).items():
        if len(atoms) == 1:
            molecule.GetAtomWithIdx(*atoms).SetProp("atomNote", note)
        else:
            molecule.GetBondBetweenAtoms(*atoms).SetProp("bondNote", note)
    return _svg(molecule, atom_colours(contributions or {}))


def atom_colours(contributions: Mapping[int, float]) -> dict[int, tuple[float, ...]]:
    """Atom -> colour: white for 0, the full colour for the strongest contribution."""
    largest = max(map(abs, contributions.values()), default=0.0) or 1.0
    colours = {}
    for atom, value in contributions.items():
        full, share = RAISES if value > 0 else LOWERS, abs(value) / largest
        colours[atom] = tuple(1 - share * (1 - channel) for channel in full)
    return colours


def _svg(molecule: Chem.Mol, colours: Mapping[int, tuple[float, ...]]) -> str:
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise ConfigError(
            f"molecules cannot be drawn here: {error}. RDKit draws with libraries of the system; "
            "on Debian and Ubuntu, install libxrender1 and libxext6."
        ) from error
    drawer = rdMolDraw2D.MolDraw2DSVG(*SIZE)
    options: Any = drawer.drawOptions()
    options.clearBackground = False
    options.padding = 0.08
    if colours:  # the colours of elements would be taken for contributions
        options.useBWAtomPalette()
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer, molecule, highlightAtoms=list(colours), highlightAtomColors=colours
    )
    drawer.FinishDrawing()
    text: str = drawer.GetDrawingText()
    return text[text.index("<svg") :]
