"""From a SMILES or a Molfile to an RDKit molecule or RDKit's error; nothing goes to stderr."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

from rdkit import Chem, rdBase
from rdkit.Chem.rdchem import Atom, Bond, BondStereo
from rdkit.Chem.rdCIPLabeler import AssignCIPLabels

from graphfold.errors import RecordError, shortened

#: Which hydrogens are atoms: none, all, or those that are written out.
Hydrogens: TypeAlias = bool | Literal["written"]


def read_molecule(smiles: str, explicit_hydrogens: Hydrogens = False) -> Chem.Mol:
    """The sanitised molecule of a SMILES.

    Salts and other disconnected parts, charges, radicals, isotopes, wildcards (`*`), dative bonds
    and lone atoms are molecules like any other. After one blank, CXSMILES between bars may follow
    (`CCO |...|`); any other text after a blank is refused, since RDKit would drop it in silence.
    Atom maps (`[CH3:1]`) are names of atoms and no part of the molecule: they are left out, since
    RDKit would take atoms that differ in them alone for different ones, in its ranks as in stereo.

    Args:
        smiles: the SMILES; blanks around it do not count.
        explicit_hydrogens: keep the hydrogens that are written out, where they stand, and, unless
            it is "written", add those that are implied, at the end. If it is False, RDKit merges
            both into their neighbours, save those with a mark of their own (`[2H]`, `[H][H]`).

    Raises:
        RecordError: if it is empty, or RDKit cannot read it; with RDKit's own reason.
    """
    with silence():
        return read_in_silence(smiles, explicit_hydrogens)


def silence() -> rdBase.BlockLogs:
    """A context in which RDKit logs nothing."""
    return rdBase.BlockLogs()


def read_in_silence(
    smiles: str, explicit_hydrogens: Hydrogens = False, keeps_maps: bool = False
) -> Chem.Mol:
    """`read_molecule` within `silence`, for many SMILES: entering it takes a tenth of reading one.

    With `keeps_maps`, atom maps are read, too.

    Raises:
        RecordError: as `read_molecule`.
    """
    smiles = smiles.strip()
    if not smiles:
        raise RecordError("the SMILES is empty", _REMEDY)
    after_blank = smiles.split(maxsplit=1)[1:]
    if after_blank and not after_blank[0].startswith("|"):
        raise _refuse(smiles, "it has a blank inside")
    if not smiles.isascii():
        strange = next(character for character in smiles if not character.isascii())
        raise _refuse(smiles, f"'{strange}' is not an ASCII character")
    text, bar, extension = smiles.partition("|")
    molecule = _parse(
        (text if keeps_maps else _MAP.sub("", text)) + bar + extension, explicit_hydrogens
    )
    if molecule is None:
        raise _refuse(smiles, _reason(smiles, explicit_hydrogens))
    return molecule


_MAP = re.compile(r":[0-9]+(?=\])")


def sides_of(smiles: str) -> list[str]:
    """The reactants, with the agents, and the products of a reaction; a molecule itself."""
    parts = _ARROW.split(smiles.partition("|")[0].strip())
    if len(parts) != 3:
        return [smiles]
    return [".".join(filter(None, parts[:2])), parts[2]]


# No dative bond, ->.
_ARROW = re.compile(r"(?<!-)>")


class WrittenMolecule(NamedTuple):
    """A molecule that did not come as a SMILES, with its SMILES.

    Args:
        molecule: the sanitised molecule, its atoms and bonds in the order in which they came.
        smiles: its canonical SMILES.
        places: [num_atoms] the place of each atom in the SMILES.
    """

    molecule: Chem.Mol
    smiles: str
    places: list[int]


def write_molecule(molecule: Chem.Mol, explicit_hydrogens: Hydrogens = False) -> WrittenMolecule:
    """Normalises a molecule as `read_molecule` does, in the order of its atoms, and writes it.

    Args:
        molecule: the molecule, which is not changed; it need not be sanitised.
        explicit_hydrogens: see `read_molecule`.

    Raises:
        RecordError: if it has no atoms, or RDKit cannot sanitise it.
    """
    if not molecule.GetNumAtoms():
        raise RecordError("the molecule has no atoms")
    copy = Chem.Mol(molecule)
    copy.RemoveAllConformers()
    for atom in atoms_of(copy):
        atom.SetAtomMapNum(0)
    for bond in bonds_of(copy, atoms_of(copy)):
        if bond.GetStereo() == BondStereo.STEREOANY:
            bond.SetStereo(BondStereo.STEREONONE)  # a SMILES has no mark for it
    try:
        Chem.SanitizeMol(copy)
        if explicit_hydrogens != "written":
            copy = Chem.AddHs(copy) if explicit_hydrogens else Chem.RemoveHs(copy)
    except (RuntimeError, ValueError) as error:
        raise RecordError(f"RDKit cannot read the molecule ({explain(str(error))})") from error
    Chem.AssignStereochemistry(copy, True, True, True)
    smiles = str(Chem.MolToSmiles(copy))
    places = [0] * copy.GetNumAtoms()
    for place, atom in enumerate(copy.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]):
        places[atom] = place
    return WrittenMolecule(copy, smiles, places)


def read_mol_block(block: str) -> Chem.Mol:
    """The sanitised molecule of a Molfile (V2000 or V3000), with its explicit hydrogens.

    Raises:
        RecordError: if RDKit cannot read it, with RDKit's own reason, or it has no atoms.
    """
    with rdBase.BlockLogs(), rdBase.CaptureErrorLog() as log:
        try:
            molecule = Chem.MolFromMolBlock(block, removeHs=False)
            reason = explain(log.messages)
        except (RuntimeError, ValueError) as error:  # its log may hold half a character
            molecule, reason = None, explain(str(error))
    if molecule is None:
        raise RecordError(f"RDKit cannot read the structure ({reason})")
    if not molecule.GetNumAtoms():
        raise RecordError("the structure has no atoms")
    return molecule


_REMEDY = "Fix the SMILES, or set data.on_error=skip."


def _refuse(smiles: str, reason: str) -> RecordError:
    return RecordError(f"RDKit cannot read SMILES '{shortened(smiles)}' ({reason})", _REMEDY)


def atoms_of(molecule: Chem.Mol) -> list[Atom]:
    """The atoms in order; by index, since RDKit's iterators take twice the time."""
    return list(map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms())))


def bonds_of(molecule: Chem.Mol, atoms: Sequence[Atom]) -> list[Bond]:
    """The bonds in order, in linear time: `GetBondWithIdx` walks along all bonds before its own.

    Args:
        molecule: the molecule.
        atoms: its atoms.
    """
    count = molecule.GetNumBonds()
    if count < _MANY_BONDS:
        return list(map(molecule.GetBondWithIdx, range(count)))
    bonds = {bond.GetIdx(): bond for atom in atoms for bond in atom.GetBonds()}
    return [bonds[index] for index in range(count)]


# From here on the detour over the atoms is quicker.
_MANY_BONDS = 1_000


def label_stereo(molecule: Chem.Mol, atoms: Sequence[Atom], bonds: Sequence[Bond]) -> None:
    """Gives CIP labels (`_CIPCode`) to the stereo centres and double bonds that still lack one.

    RDKit labels most of them while it reads. The rest, such as the cis and trans centres of a ring,
    need the full rules (Hanson et al. 2018, https://doi.org/10.1021/acs.jcim.8b00324); where these
    take too long, as in large symmetric molecules, the label stays out.

    Args:
        molecule: the molecule, which is changed.
        atoms: its atoms, or at least those that are stereo centres.
        bonds: its bonds, or at least those with a configuration.
    """
    centres = [a.GetIdx() for a in atoms if a.GetChiralTag() and not a.HasProp("_CIPCode")]
    doubles = [b.GetIdx() for b in bonds if b.GetStereo() in _RELATIVE]
    if centres or doubles:
        with rdBase.BlockLogs(), suppress(RuntimeError):
            AssignCIPLabels(molecule, centres, doubles, _CIP_STEPS)


def has_stereo(smiles: str) -> bool:
    """False for a SMILES without any mark of stereo centres or double bonds."""
    return not smiles or not _MARKS.isdisjoint(smiles)


#: Marks of stereo in a SMILES, and the bar before CXSMILES, which may have some.
_MARKS = frozenset("@/\\|")


def cip_label(item: Atom | Bond) -> str | None:
    """The CIP label of an atom or a bond; None if it has none."""
    return item.GetProp("_CIPCode") if item.HasProp("_CIPCode") else None


_LONGEST_LOG = 10_000_000
_RELATIVE = {BondStereo.STEREOCIS, BondStereo.STEREOTRANS}
_CIP_STEPS = 10_000


def _parse(smiles: str, explicit_hydrogens: Hydrogens) -> Chem.Mol | None:
    if not explicit_hydrogens:
        return Chem.MolFromSmiles(smiles)
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = False  # type: ignore[assignment]  # the stub takes it for the class
    molecule = Chem.MolFromSmiles(smiles, parameters)
    return molecule if molecule is None or explicit_hydrogens == "written" else Chem.AddHs(molecule)


def _reason(smiles: str, explicit_hydrogens: Hydrogens) -> str:
    """RDKit's error about a SMILES, which it only logs: the SMILES is read again for the log.

    RDKit logs the SMILES once for each open bracket, which may fill the memory.
    """
    num_open = smiles.count("(") - smiles.count(")")
    if num_open * len(smiles) > _LONGEST_LOG:
        return f"{num_open} parentheses are never closed"
    if len(sides_of(smiles)) > 1:
        return "it is a reaction, which data.reaction=reac_diff reads"
    if "{" in smiles:
        return "it is BigSMILES of a polymer; only molecules are read, such as its repeat unit"
    with rdBase.BlockLogs(), rdBase.CaptureErrorLog() as log:
        _parse(smiles, explicit_hydrogens)
    return explain(log.messages)


def explain(messages: str) -> str:
    """A short reason out of RDKit's log of one SMILES, without drawings and stack traces."""
    lines = [re.sub(r"^\[\d\d:\d\d:\d\d\]", "", line).strip() for line in messages.splitlines()]
    lines = [line for line in lines if line.strip("*")]
    if not lines:
        return "RDKit gives no reason"
    if lines[0].endswith("Violation") and len(lines) > 1:
        return lines[1]
    reason = re.split(r" (?:for input|while parsing):", lines[0].removeprefix(_PARSE_ERROR))[0]
    position = re.search(r"around position (\d+)", messages)
    if position:
        reason += f" around position {position[1]}"
    return shortened(reason, 160)


_PARSE_ERROR = "SMILES Parse Error: "


def canonical_smiles(smiles: Sequence[str]) -> list[str]:
    """RDKit's canonical SMILES of each molecule, stereo marks and salts included, maps not.

    That of a reaction has the sides `reactants.agents>>products`.

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    with silence():
        canonical = {
            text: ">>".join(Chem.MolToSmiles(read_in_silence(side)) for side in sides_of(text))
            for text in {*smiles}
        }
    return [canonical[text] for text in smiles]
