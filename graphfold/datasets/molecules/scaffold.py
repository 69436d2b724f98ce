"""The Bemis-Murcko scaffold of a molecule, by which scaffold splits group molecules."""

from __future__ import annotations

from collections.abc import Sequence

from rdkit import Chem, rdBase
from rdkit.Chem.rdchem import Atom, BondType, ChiralType, Mol

from graphfold.datasets.molecules.molecule import read_molecule


def murcko_scaffolds(smiles: Sequence[str]) -> list[str]:
    """The scaffold of each molecule as a canonical SMILES without stereo marks.

    The scaffold is the rings, what links them, and what these hold by double bonds (Bemis and
    Murcko 1996, https://doi.org/10.1021/jm9602928); "" for a molecule without rings. Equals
    `MurckoScaffoldSmiles` of `rdkit.Chem.Scaffolds.MurckoScaffold`, which however takes two minutes
    for a polymer of 5,000 atoms.

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    known: dict[str, str] = {}
    for text in smiles:
        if text not in known:
            known[text] = murcko_scaffold(read_molecule(text))
    return [known[text] for text in smiles]


def murcko_scaffold(molecule: Mol) -> str:
    """The scaffold of one molecule; see `murcko_scaffolds`."""
    core = rings_and_linkers(molecule)
    if not core:
        return ""
    scaffold = Chem.RWMol(molecule)
    side = [atom.GetIdx() for atom in scaffold.GetAtoms() if atom.GetIdx() not in core]
    scaffold.BeginBatchEdit()
    for index in side:
        atom = scaffold.GetAtomWithIdx(index)
        # At most one: an atom between two of the core would be part of a linker.
        bonds = [bond for bond in atom.GetBonds() if bond.GetOtherAtomIdx(index) in core]
        if bonds and bonds[0].GetBondType() == BondType.DOUBLE:
            continue
        for bond in bonds:
            _fill_with_hydrogen(bond.GetOtherAtom(atom))
        scaffold.RemoveAtom(index)
    scaffold.CommitBatchEdit()
    with rdBase.BlockLogs():
        scaffold.ClearComputedProps()
        scaffold.UpdatePropertyCache()
        Chem.GetSymmSSSR(scaffold)
        return str(Chem.MolToSmiles(scaffold, isomericSmiles=False))


def rings_and_linkers(molecule: Mol) -> set[int]:
    """The atoms left when those with at most one neighbour are taken away, again and again."""
    degree = [atom.GetDegree() for atom in molecule.GetAtoms()]
    core = set(range(len(degree)))
    ends = [index for index in core if degree[index] < 2]
    while ends:
        end = ends.pop()
        core.discard(end)
        for neighbour in molecule.GetAtomWithIdx(end).GetNeighbors():
            index = neighbour.GetIdx()
            degree[index] -= 1
            if degree[index] == 1 and index in core:
                ends.append(index)
    return core


def _fill_with_hydrogen(atom: Atom) -> None:
    """Lets hydrogen take the place of a side chain, as RDKit does."""
    if atom.GetIsAromatic() and atom.GetAtomicNum() != 6:
        atom.SetNumExplicitHs(1)
    elif atom.GetNoImplicit() or atom.GetChiralTag() != ChiralType.CHI_UNSPECIFIED:
        atom.SetNoImplicit(False)
        atom.SetNumExplicitHs(0)
        atom.SetChiralTag(ChiralType.CHI_UNSPECIFIED)
