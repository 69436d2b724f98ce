"""Molecules with measured activities out of the rdkit wheel."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from rdkit import RDConfig

from graphfold.datasets.files.tables import open_table
from graphfold.errors import DataError
from graphfold.files import write_text

#: The columns of the table that `write_chembl` makes.
COLUMNS = ("smiles", "pIC50", "compound")


def chembl_folder() -> Path:
    """The folder of rdkit's installation with the data of its Free-Wilson example."""
    return Path(RDConfig.RDContribDir) / "FreeWilson" / "data"


def write_chembl(folder: Path, source: Path | None = None) -> Path:
    """Writes `chembl.csv`: the compounds of ChEMBL document CHEMBL2321810 with their pIC50.

    rdkit carries them as two files, SMILES and activities, which are joined by the number of the
    compound. pIC50 is -log10 of the IC50 in mol/L.

    Args:
        folder: where to; made if need be.
        source: the folder of the two files; rdkit's own by default.

    Returns:
        The table, written whole or not at all: columns `smiles`, `pIC50`, `compound`.

    Raises:
        DataError: if the files are absent, or do not name the same compounds.
    """
    source = source or chembl_folder()
    rows = list(_joined(source / "CHEMBL2321810.smi", source / "CHEMBL2321810_act.csv"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chembl.csv"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    if not path.is_file() or path.read_text(encoding="utf-8") != text.getvalue():
        write_text(path, text.getvalue())  # a table that is being read does not change
    return path


def _joined(molecules: Path, activities: Path) -> Iterator[tuple[str, str, str]]:
    """The rows of the table, in the order of the molecules."""
    for file in (molecules, activities):
        if not file.is_file():
            raise DataError.in_file(
                file,
                "no such file, though rdkit carries it in its wheels. Install rdkit with "
                "`pip install --force-reinstall rdkit`, or use another corpus.",
            )
    table = open_table(activities)
    name, value = table.find(["Name", "Act"], "another version of rdkit")
    measured = {row.cells[name]: row.cells[value] for row in table.rows()}
    for line, (smiles, compound), _ in open_table(molecules).rows():
        if compound not in measured:
            raise DataError.in_file(
                molecules,
                f"compound {compound} has no activity in {activities.name}. "
                "Install another version of rdkit, or use another corpus.",
                line,
            )
        yield smiles, measured[compound], compound
