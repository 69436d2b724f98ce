"""SDF: structures with properties, read as a table of SMILES."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdkit import Chem

from graphfold.datasets.files.record_limit import RecordLimit
from graphfold.datasets.files.tables import Row, Table
from graphfold.datasets.files.text_files import Line, scan_lines
from graphfold.datasets.molecules.molecule import read_mol_block
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


def open_sdf(path: Path, _: bool = True) -> Table:
    """Opens an SDF file (https://en.wikipedia.org/wiki/Chemical_table_file).

    The first column is the canonical SMILES of each structure, as RDKit writes it, stereo centres
    included; the second one, `title` (`title_2` where a property has that name), is the first line
    of each record. The others are the properties of all records in order of their first occurrence,
    empty where a record lacks one. A property called `smiles` becomes `smiles_2`.

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
        fault, smiles = next(faults, None), ""
        try:
            smiles = _smiles(_structure(lines))
        except RecordError as error:
            fault = fault or error.fault
        pairs = _properties(lines)
        values = dict(pairs)
        if len(values) < len(pairs):
            [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
            fault = fault or f"the record has the property '{twice}' twice"
        cells = (smiles, lines[0].text.strip(), *(values.get(name, "") for name in names))
        yield Row(lines[0].number, cells, fault)


def _smiles(block: str) -> str:
    counts = _COUNTS.search(block)
    if counts is not None and int(counts[1]) > MOST_ATOMS:
        raise RecordError(
            f"the structure has {int(counts[1]):,} atoms, and {MOST_ATOMS:,} are the most in SDF; "
            "a table of SMILES with data.longest_smiles has no such limit"
        )
    return str(Chem.MolToSmiles(read_mol_block(block)))


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


def _structure(lines: Sequence[Line]) -> str:
    texts: list[str] = []
    for line in lines:
        if line.text.startswith(">"):
            break
        texts.append(line.text)
        if line.text.startswith("M  END"):
            break
    return "\n".join(texts) + "\n"


def _properties(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Each property with its value; the lines of a long value are joined by blanks."""
    values: list[tuple[str, list[str]]] = []
    current: list[str] | None = None
    for line in lines:
        match = _PROPERTY.match(line.text)
        if match is not None:
            current = []
            values.append((match[1], current))
        elif not line.text.strip():
            current = None
        elif current is not None:
            current.append(line.text)
    return [(name, " ".join(texts)) for name, texts in values]
