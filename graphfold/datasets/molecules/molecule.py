"""From a SMILES or a Molfile to an RDKit molecule, or to RDKit's reason; nothing goes to stderr.

The molecule behind a record is one whatever its SMILES, its hydrogens and its atom maps are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rdkit import Chem, rdBase
from rdkit.Chem.rdchem import Atom, Bond, BondStereo
from rdkit.Chem.rdCIPLabeler import AssignCIPLabels

from graphfold.errors import RecordError, shortened


def read_molecule(smiles: str, explicit_hydrogens: bool = False) -> Chem.Mol:
    """The sanitised molecule of a SMILES.

    Salts and other disconnected parts, charges, radicals, isotopes, wildcards (`*`), dative bonds
    and lone atoms are molecules like any other. After one blank, CXSMILES between bars may follow
    (`CCO |...|`); any other text after a blank is refused, since RDKit would drop it in silence.
    Atom maps (`[CH3:1]`) are names of atoms and no part of the molecule: they are left out, since
    RDKit would take atoms that differ in them alone for different ones, in its ranks as in stereo.

    Args:
        smiles: the SMILES; blanks around it do not count.
        explicit_hydrogens: keep the hydrogens that are written out, where they stand, and add
            those that are implied, at the end. Otherwise RDKit merges both into their neighbours,
            save those with a mark of their own (`[2H]`, `[H][H]`).

    Raises:
        RecordError: if it is empty, or RDKit cannot read it; with RDKit's own reason.
    """
    with silence():
        return read_in_silence(smiles, explicit_hydrogens)


def silence() -> rdBase.BlockLogs:
    """A block in which RDKit logs nothing."""
    return rdBase.BlockLogs()


def read_in_silence(smiles: str, explicit_hydrogens: bool = False) -> Chem.Mol:
    """`read_molecule` for many SMILES in one block of `silence`.

    To enter and to leave the block takes a tenth as long as to read one.

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
    molecule = _parse(_without_maps(smiles), explicit_hydrogens)
    if molecule is None:
        raise _refuse(smiles, _reason(smiles, explicit_hydrogens))
    return molecule


def _without_maps(smiles: str) -> str:
    """A SMILES without atom maps; what follows it between bars stays."""
    text, bar, extension = smiles.partition("|")
    return _MAP.sub("", text) + bar + extension


_MAP = re.compile(r":[0-9]+(?=\])")


class WrittenMolecule(NamedTuple):
    """A molecule that did not come as a SMILES, with the SMILES that stands for it.

    Args:
        molecule: the sanitised molecule, its atoms and bonds in the order in which they came.
        smiles: its canonical SMILES.
        places: [num_atoms] the place of each atom in the SMILES.
    """

    molecule: Chem.Mol
    smiles: str
    places: list[int]


def write_molecule(molecule: Chem.Mol, explicit_hydrogens: bool = False) -> WrittenMolecule:
    """The molecule as `read_molecule` has that of its SMILES, but for the order of its atoms.

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
    """The sanitised molecule of a structure in a Molfile (V2000 or V3000), hydrogens as they are.

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
    """The bonds in order, in linear time: RDKit walks along all bonds before the one asked for.

    Args:
        molecule: the molecule.
        atoms: its atoms.
    """
    count = molecule.GetNumBonds()
    if count < _MANY_BONDS:
        return list(map(molecule.GetBondWithIdx, range(count)))
    found = {bond.GetIdx(): bond for atom in atoms for bond in atom.GetBonds()}
    return [found[index] for index in range(count)]


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
    """True unless a SMILES says that its molecule has neither centres nor double bonds marked."""
    return not smiles or not _MARKS.isdisjoint(smiles)


#: Marks of stereo in a SMILES, and the bar before CXSMILES, which may have some.
_MARKS = frozenset("@/\\|")


def cip_label(item: Atom | Bond) -> str | None:
    """The CIP label of an atom or a bond; None if it has none."""
    return item.GetProp("_CIPCode") if item.HasProp("_CIPCode") else None


_LONGEST_LOG = 10_000_000
_RELATIVE = {BondStereo.STEREOCIS, BondStereo.STEREOTRANS}
_CIP_STEPS = 10_000


def _parse(smiles: str, explicit_hydrogens: bool) -> Chem.Mol | None:
    if not explicit_hydrogens:
        return Chem.MolFromSmiles(smiles)
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = False  # type: ignore[assignment]  # the stub takes it for the class
    molecule = Chem.MolFromSmiles(smiles, parameters)
    return None if molecule is None else Chem.AddHs(molecule)


def _reason(smiles: str, explicit_hydrogens: bool) -> str:
    """RDKit only logs why it refuses a SMILES, so it is read once more with an ear on the log.

    It logs the SMILES once for each bracket that stays open, which may fill the memory.
    """
    num_open = smiles.count("(") - smiles.count(")")
    if num_open * len(smiles) > _LONGEST_LOG:
        return f"{num_open} parentheses are never closed"
    if ">" in smiles.replace("->", ""):
        return "it is a reaction; only molecules are read, such as its product in another column"
    if "{" in smiles:
        return "it is BigSMILES of a polymer; only molecules are read, such as its repeat unit"
    with rdBase.BlockLogs(), rdBase.CaptureErrorLog() as log:
        _parse(smiles, explicit_hydrogens)
    return explain(log.messages)


def explain(messages: str) -> str:
    """One short reason out of what RDKit logged about one SMILES.

    A parse error is logged with the whole SMILES and a drawing of the position, a broken internal
    condition with a stack trace; neither belongs into a message for the user.
    """
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

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    with silence():
        texts = dict.fromkeys(smiles)
        known = {text: Chem.MolToSmiles(read_in_silence(text)) for text in texts}
    return [known[text] for text in smiles]
