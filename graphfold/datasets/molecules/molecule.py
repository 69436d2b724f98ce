"""From a SMILES or a Molfile to an RDKit molecule, or to RDKit's reason; nothing goes to stderr.

The molecule behind a record is one whatever its SMILES, its hydrogens and its atom maps are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from rdkit import Chem, rdBase
from rdkit.Chem.rdchem import Atom, Bond, BondStereo
from rdkit.Chem.rdCIPLabeler import AssignCIPLabels

from graphfold.errors import RecordError, shortened


def read_molecule(
    smiles: str, explicit_hydrogens: bool = False, possible_stereo: bool = True
) -> Chem.Mol:
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
        possible_stereo: whether RDKit notes which atoms might be stereo centres though they have no
            mark, as its descriptors want it; atoms and bonds themselves are the same without, and
            reading takes up to a fifth less time.

    Raises:
        RecordError: if it is empty, or RDKit cannot read it; with RDKit's own reason.
    """
    with silence():
        return read_in_silence(smiles, explicit_hydrogens, possible_stereo)


def silence() -> rdBase.BlockLogs:
    """A block in which RDKit logs nothing."""
    return rdBase.BlockLogs()


def read_in_silence(smiles: str, explicit_hydrogens: bool, possible_stereo: bool) -> Chem.Mol:
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
    molecule, plain = None, _without_maps(smiles)
    if not (explicit_hydrogens or possible_stereo or _NEEDS_MORE.search(plain)):
        molecule = _parse_plain(plain)
    if molecule is None:
        molecule = _parse(plain, explicit_hydrogens)
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


def write_molecule(
    molecule: Chem.Mol, explicit_hydrogens: bool = False, possible_stereo: bool = True
) -> WrittenMolecule:
    """The molecule as `read_molecule` has that of its SMILES, but for the order of its atoms.

    Args:
        molecule: the molecule, which is not changed; it need not be sanitised.
        explicit_hydrogens: see `read_molecule`.
        possible_stereo: see `read_molecule`.

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
    Chem.AssignStereochemistry(copy, True, True, possible_stereo)
    smiles = str(Chem.MolToSmiles(copy))
    places = [0] * copy.GetNumAtoms()
    for place, atom in enumerate(copy.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]):
        places[atom] = place
    return WrittenMolecule(copy, smiles, places)


def parse_alone(smiles: Iterable[str]) -> None:
    """RDKit's parser alone, of which nothing is kept: what any reader spends at least."""
    with rdBase.BlockLogs():
        for text in smiles:
            Chem.MolFromSmiles(text)


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


#: Hydrogens that may be merged into their neighbours (`[H]`, `[2H]`, `[D]`, `[#1]`), and CXSMILES.
_NEEDS_MORE = re.compile(r"\||\[\d*(?:[HDT]|#1)")
_STEREO_MARKS = re.compile(r"[@/\\]")


def _parse_plain(smiles: str) -> Chem.Mol | None:
    """The molecule of a SMILES without these, by the steps of `MolFromSmiles`; None if one fails.

    `MolFromSmiles` also looks for hydrogens and for centres that have no mark.
    """
    molecule = Chem.MolFromSmiles(smiles, _plain())
    if molecule is None:
        return None
    try:
        Chem.SanitizeMol(molecule)
        if _STEREO_MARKS.search(smiles):
            Chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    except (RuntimeError, ValueError):
        return None
    return molecule


@cache
def _plain() -> Chem.SmilesParserParams:
    """Parameters by which a SMILES is parsed and left as it stands."""
    parameters = Chem.SmilesParserParams()
    parameters.sanitize = False  # type: ignore[assignment]  # the stub takes it for the class
    parameters.removeHs = False  # type: ignore[assignment]
    return parameters


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
        known = {text: Chem.MolToSmiles(read_in_silence(text, False, False)) for text in texts}
    return [known[text] for text in smiles]
