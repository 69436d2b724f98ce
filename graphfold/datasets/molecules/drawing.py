"""Drawings of molecules with notes beside atoms and bonds, or coloured by contributions.

A reaction is drawn as the molecules of its two sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rdkit import Chem

from graphfold.datasets.molecules.molecule import (
    Hydrogens,
    atoms_of,
    read_molecule,
    sides_of,
    silence,
)
from graphfold.datasets.molecules.reactions import read_reaction
from graphfold.errors import ConfigError

#: Width and height of the drawing of a molecule, in pixels.
SIZE = 260, 180

#: Blue raises the prediction, orange lowers it: colours that everybody can tell apart.
RAISES, LOWERS = (0.17, 0.42, 0.69), (0.87, 0.42, 0.13)

#: Atom -> colour.
Colours: TypeAlias = dict[int, tuple[float, ...]]

#: What `explicit_hydrogens` may be, from few atoms to many.
_HYDROGENS: tuple[Hydrogens, ...] = (False, "written", True)


def draw_molecule(
    smiles: str,
    num_atoms: int = 0,
    notes: Mapping[tuple[int, ...], str] | None = None,
    contributions: Mapping[int, float] | None = None,
) -> str:
    """A molecule or a reaction as an SVG element, its strongest contribution in full colour.

    Args:
        smiles: a SMILES.
        num_atoms: the atoms of the graph; if they are more than those of the molecule, hydrogens
            are drawn as atoms, too.
        notes: texts beside atoms and bonds of a molecule: (atom,) or (atom, atom) -> text.
        contributions: place of an atom in the SMILES -> number.

    Raises:
        RecordError: if RDKit cannot read the SMILES.
        ConfigError: if the system lacks what RDKit draws with.
    """
    colours = atom_colours(contributions or {})
    if len(sides_of(smiles)) > 1:
        return _svg(*_sides(smiles, num_atoms, colours))
    molecules = (read_molecule(smiles, hydrogens) for hydrogens in _HYDROGENS)
    molecule = next(found for found in molecules if found.GetNumAtoms() >= num_atoms)
    for atoms, note in (notes or {}).items():
        if len(atoms) == 1:
            molecule.GetAtomWithIdx(*atoms).SetProp("atomNote", note)
        else:
            molecule.GetBondBetweenAtoms(*atoms).SetProp("bondNote", note)
    return _svg([molecule], [colours])


def _sides(
    smiles: str, num_atoms: int, colours: Colours
) -> tuple[Sequence[Chem.Mol], Sequence[Colours]]:
    """The two sides of a reaction, and the colours of their atoms."""
    with silence():
        reactions = (read_reaction(smiles, hydrogens) for hydrogens in _HYDROGENS)
        reaction = next(found for found in reactions if len(found.atoms) >= num_atoms)
    shown: tuple[Colours, Colours] = {}, {}
    for place, pair in zip(reaction.places, reaction.atoms.tolist(), strict=True):
        for side, atom in enumerate(pair):
            if atom >= 0 and place in colours:
                shown[side][atom - side * reaction.sides[0].GetNumAtoms()] = colours[place]
    for molecule in reaction.sides:
        for item in atoms_of(molecule):
            item.SetAtomMapNum(0)
    return reaction.sides, shown


def atom_colours(contributions: Mapping[int, float]) -> Colours:
    """Atom -> colour: white for 0, the full colour for the strongest contribution."""
    largest = max(map(abs, contributions.values()), default=0.0) or 1.0
    colours = {}
    for atom, value in contributions.items():
        full, share = RAISES if value > 0 else LOWERS, abs(value) / largest
        colours[atom] = tuple(1 - share * (1 - channel) for channel in full)
    return colours


def _svg(molecules: Sequence[Chem.Mol], colours: Sequence[Colours]) -> str:
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise ConfigError(
            f"molecules cannot be drawn here: {error}. RDKit draws with libraries of the system; "
            "on Debian and Ubuntu, install libxrender1 and libxext6."
        ) from error
    width, height = SIZE
    drawer = rdMolDraw2D.MolDraw2DSVG(width * len(molecules), height, width, height)
    options: Any = drawer.drawOptions()
    options.clearBackground = False
    options.padding = 0.08
    if any(colours):  # the colours of elements would be taken for contributions
        options.useBWAtomPalette()
    drawer.DrawMolecules(
        [*molecules],
        highlightAtoms=[list(atoms) for atoms in colours],
        highlightAtomColors=[*colours],
        legends=["reactants", "products"] if len(molecules) > 1 else [""],
    )
    drawer.FinishDrawing()
    text: str = drawer.GetDrawingText()
    return text[text.index("<svg") :]
