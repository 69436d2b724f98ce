"""SDF: structures with properties, read as a table of SMILES."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdkit import Chem

from graphfold.datasets.files.record_limit import RecordLimit
from graphfold.datasets.files.tables import Row, StructureRow, Table
from graphfold.datasets.files.text_files import Line, scan_lines
from graphfold.datasets.molecules.molecule import read_mol_block, silence, write_molecule
from graphfold.errors import RecordError

SMILES = "smiles"

TITLE = "title"

#: RDKit takes time that grows with the square of the atoms and more.
MOST_ATOMS = 10_000

_END = "$$$$"

#: The atoms of a structure of V3000; one of V2000 has 999 at most.
_COUNTS = re.compile(r"^M  V30 COUNTS +(\d+)", re.MULTILINE)

#: The first line of a property, such as `>  <logS> (1)`.
_PROPERTY = re.compile(r">[^<]*<(.+)>")


def open_sdf(path: Path) -> Table:
    """Opens an SDF file (https://en.wikipedia.org/wiki/Chemical_table_file).

    The first column is the canonical SMILES of each structure, as RDKit writes it, stereo centres
    included; each row also has the molecule, with its atoms in the order of the file. The second
    column, `title` (`title_2` where a property has that name), is the first line of each record.
    The others are the properties of all records in order of their first occurrence, empty where a
    record lacks one. A property called `smiles` becomes `smiles_2`.

    Raises:
        DataError: if the file cannot be read.
    """
    names = list(dict.fromkeys(n for lines in _records(path) for n, _ in _properties(lines)))
    title = f"{TITLE}_2" if TITLE in names else TITLE
    columns = (SMILES, title, *(f"{SMILES}_2" if name == SMILES else name for name in names))
    return Table(path, columns, lambda: _rows(path, names), smiles_column=SMILES, name_column=title)


def _rows(path: Path, names: Sequence[str]) -> Iterator[Row]:
    for lines in _records(path):
        faults = (line.fault.fault for line in lines if line.fault is not None)
        fault, smiles, molecule = next(faults, None), "", None
        try:
            structure = lines[: _end_of_structure(lines)]
            molecule = _read("".join(f"{line.text}\n" for line in structure))
            with silence():
                smiles = write_molecule(molecule).smiles
        except RecordError as error:
            fault = fault or error.fault
        pairs = _properties(lines)
        values = dict(pairs)
        if len(values) < len(pairs):
            [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
            fault = fault or f"the record has the property '{twice}' twice"
        cells = (smiles, lines[0].text.strip(), *(values.get(name, "") for name in names))
        row = StructureRow(lines[0].number, cells, fault)
        row.molecule = molecule
        yield row


def _read(block: str) -> Chem.Mol:
    counts = _COUNTS.search(block)
    if counts is not None and int(counts[1]) > MOST_ATOMS:
        raise RecordError(
            f"the structure has {int(counts[1]):,} atoms, and {MOST_ATOMS:,} are the most in SDF"
        )
    return read_mol_block(block)


def _records(path: Path) -> Iterator[list[Line]]:
    """The lines of each record, without the line that ends it."""
    lines: list[Line] = []
    limit = RecordLimit(path)
    for line in scan_lines(path):
        if line.text.rstrip() == _END:
            yield lines or [line._replace(text="")]
            lines = []
            limit.begin()
        else:
            limit.add(line.number, len(line.text))
            lines.append(line)
    if any(line.text.strip() for line in lines):
        yield lines


#: The lines before the atoms of a structure; the title, which is the first, may be any text.
_HEADER = 3


def _end_of_structure(lines: Sequence[Line]) -> int:
    """The number of lines of the structure; its properties follow."""
    for number, line in enumerate(lines):
        if number >= _HEADER and line.text.startswith("M  END"):
            return number + 1
        if number >= _HEADER and line.text.startswith(">"):
            return number
    return len(lines)


def _properties(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Each property with its value; the lines of a long value are joined by blanks.

    A line that begins with `>` names a property if it follows a blank line or the structure;
    elsewhere it is a line of the value.
    """
    values: list[tuple[str, list[str]]] = []
    current: list[str] = []
    has_ended = True
    for line in lines[_end_of_structure(lines) :]:
        if has_ended and line.text.startswith(">"):
            current, match = [], _PROPERTY.match(line.text)
            if match is not None:
                values.append((match[1], current))
        elif line.text.strip():
            current.append(line.text)
        has_ended = not line.text.strip()
    return [(name, " ".join(texts)) for name, texts in values]
