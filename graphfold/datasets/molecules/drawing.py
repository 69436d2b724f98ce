"""Drawings of molecules, whose atoms and bonds may be coloured by their contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rdkit import Chem

from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.errors import ConfigError, RecordError

#: Width and height of a drawing, in pixels.
SIZE = 260, 180

#: Blue raises the prediction, orange lowers it: colours that everybody can tell apart.
RAISES, LOWERS = (0.17, 0.42, 0.69), (0.87, 0.42, 0.13)

Colour: TypeAlias = tuple[float, float, float]


def draw_molecule(
    smiles: str,
    notes: Mapping[tuple[int, ...], str] | None = None,
    num_atoms: int | None = None,
) -> str:
    """A molecule as an SVG element.

    Args:
        smiles: a SMILES.
        notes: what is written beside atoms and bonds: (atom,) or (atom, atom) -> text.
        num_atoms: of the graph that the notes are of; if it has more than the molecule, hydrogens
            are atoms of it.

    Raises:
        RecordError: if RDKit cannot read the SMILES.
    """
    molecule = read_molecule(smiles)
    if notes and num_atoms is not None and num_atoms > molecule.GetNumAtoms():
        molecule = read_molecule(smiles, explicit_hydrogens=True)
    for atoms, note in (notes or {}).items():
        if len(atoms) == 1:
            molecule.GetAtomWithIdx(*atoms).SetProp("atomNote", note)
        else:
            molecule.GetBondBetweenAtoms(*atoms).SetProp("bondNote", note)
    return _svg(molecule)


def draw_contributions(
    smiles: str,
    atoms: Sequence[float],
    bonds: Sequence[tuple[int, int, float]] = (),
    explicit_hydrogens: bool = False,
) -> str:
    """A molecule as an SVG element, its strongest contribution in full colour.

    Args:
        smiles: a SMILES that can be read.
        atoms: [num_atoms] the contribution of each atom, in the order of the SMILES.
        bonds: the two atoms and the contribution of each bond.
        explicit_hydrogens: whether hydrogens are atoms.

    Raises:
        RecordError: if RDKit cannot read it, or it has other atoms or bonds.
    """
    molecule = read_molecule(smiles, explicit_hydrogens)
    found = [molecule.GetBondBetweenAtoms(a, b) for a, b, _ in bonds]
    if molecule.GetNumAtoms() != len(atoms) or None in found:
        raise RecordError(
            f"'{smiles}' has other atoms or bonds than the graph that was explained",
            "Draw it with the options that it was read with.",
        )
    largest = max(map(abs, [*atoms, *(value for _, _, value in bonds)]), default=0.0)
    scale = 1 / largest if largest else 0.0
    of_atoms = {index: _colour(value * scale) for index, value in enumerate(atoms)}
    of_bonds = {
        bond.GetIdx(): _colour(value * scale)
        for bond, (_, _, value) in zip(found, bonds, strict=True)
    }
    return _svg(
        molecule,
        highlightAtoms=list(of_atoms),
        highlightAtomColors=of_atoms,
        highlightBonds=list(of_bonds),
        highlightBondColors=of_bonds,
    )


def _svg(molecule: Chem.Mol, **highlights: Any) -> str:
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
    if highlights:  # the colours of elements would be taken for contributions
        options.useBWAtomPalette()
    rdMolDraw2D.PrepareAndDrawMolecule(drawer, molecule, **highlights)
    drawer.FinishDrawing()
    text: str = drawer.GetDrawingText()
    return text[text.index("<svg") :]


def _colour(value: float) -> Colour:
    """White for 0, the full colour for 1 and for -1."""
    red, green, blue = RAISES if value > 0 else LOWERS
    share = min(abs(value), 1.0)
    return 1 - share * (1 - red), 1 - share * (1 - green), 1 - share * (1 - blue)
