"""Drawings of molecules with notes beside atoms and bonds, or coloured by their contributions."""

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
    contributions: Mapping[tuple[int, ...], float] | None = None,
) -> str:
    """A molecule as an SVG element, its strongest contribution in full colour.

    Args:
        smiles: a SMILES.
        num_atoms: the atoms of the graph; if they are more than those of the molecule, hydrogens
            are drawn as atoms, too.
        notes: texts beside atoms and bonds: (atom,) or (atom, atom) -> text.
        contributions: the numbers of atoms and bonds, likewise.

    Raises:
        RecordError: if RDKit cannot read the SMILES.
        ConfigError: if the system lacks what RDKit draws with.
    """
    molecule = read_molecule(smiles)
    if num_atoms > molecule.GetNumAtoms():
        molecule = read_molecule(smiles, explicit_hydrogens=True)
    for atoms, note in (notes or {}).items():
        part, name = _part(molecule, atoms)
        part.SetProp(f"{name}Note", note)
    largest = max(map(abs, (contributions or {}).values()), default=0.0) or 1.0
    colours: dict[str, dict[int, tuple[float, ...]]] = {"atom": {}, "bond": {}}
    for atoms, value in (contributions or {}).items():
        part, name = _part(molecule, atoms)
        colours[name][part.GetIdx()] = _colour(value / largest)
    return _svg(molecule, colours["atom"], colours["bond"])


def _part(molecule: Chem.Mol, atoms: tuple[int, ...]) -> tuple[Any, str]:
    if len(atoms) == 1:
        return molecule.GetAtomWithIdx(*atoms), "atom"
    return molecule.GetBondBetweenAtoms(*atoms), "bond"


def _svg(
    molecule: Chem.Mol,
    atoms: Mapping[int, tuple[float, ...]],
    bonds: Mapping[int, tuple[float, ...]],
) -> str:
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
    if atoms:  # the colours of elements would be taken for contributions
        options.useBWAtomPalette()
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        molecule,
        highlightAtoms=list(atoms),
        highlightAtomColors=atoms,
        highlightBonds=list(bonds),
        highlightBondColors=bonds,
    )
    drawer.FinishDrawing()
    text: str = drawer.GetDrawingText()
    return text[text.index("<svg") :]


def _colour(value: float) -> tuple[float, ...]:
    """White for 0, the full colour for 1 and for -1."""
    full = RAISES if value > 0 else LOWERS
    return tuple(1 - abs(value) * (1 - channel) for channel in full)
