"""A table of ZINC molecules with their penalised logP."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rdkit import Chem

from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.datasets.molecules.penalised_logp import penalised_logp
from graphfold.errors import DataError
from graphfold.files import write_text

#: The columns of the tables.
COLUMNS = ("smiles", "plogp", "logP", "SA", "ring_excess")


def write_zinc_plogp(
    paths: Mapping[str, Path], sizes: Mapping[str, int], sources: Sequence[Path], seed: int
) -> None:
    """Writes a table for each part: different molecules, drawn at random from the sources.

    Args:
        paths: part -> the table, written whole or not at all.
        sizes: part -> how many molecules.
        sources: tables of molecules with a column `smiles`.
        seed: of the choice.

    Raises:
        DataError: if the sources have too few different molecules.
        RecordError: if RDKit cannot read one of them.
    """
    drawn = _different(sources, seed)
    for part, size in sizes.items():
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        for count in range(size):
            found = next(drawn, None)
            if found is None:
                raise DataError(
                    f"there are molecules for {count} of the {size} records of {part}. Set smaller "
                    "sizes of the parts."
                )
            smiles, molecule = found
            rows.writerow([smiles, *penalised_logp(molecule)])
        write_text(paths[part], text.getvalue())


def _different(sources: Sequence[Path], seed: int) -> Iterator[tuple[str, Chem.Mol]]:
    """Molecules in random order, each once, with their SMILES as it stands in the source."""
    texts = []
    for source in sources:
        table = open_table(source)
        (column,) = table.find(["smiles"], "another table")
        texts += [row.cells[column].strip() for row in table.rows()]
    random.Random(seed).shuffle(texts)
    known = set()
    for text in texts:
        molecule = read_molecule(text)
        canonical = Chem.MolToSmiles(molecule)
        if canonical not in known:
            known.add(canonical)
            yield text, molecule
