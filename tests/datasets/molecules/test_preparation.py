"""Salts and standardisation: the changed molecule, and the column that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphfold.datasets.adapter import ReadResult, Record, count_changed, read_records
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError

SALT, PLAIN = "CC(=O)[O-].[Na+]", "CCO"


def read(*smiles: str, **options: Any) -> ReadResult:
    records = [Record(line, RecordRow(text)) for line, text in enumerate(smiles, start=1)]
    return read_records(SmilesAdapter(**options), Path("m.csv"), records, "skip")


@pytest.mark.parametrize("directed_bonds", [False, True])
@pytest.mark.parametrize(
    ("options", "smiles", "expected"),
    [
        ({"salts": "strip"}, SALT, "CC(=O)[O-]"),
        ({"salts": "strip"}, "O.O.c1ccccc1", "c1ccccc1"),
        ({"standardize": "cleanup"}, "CN(=O)=O", None),  # RDKit's reader writes it like that itself
        ({"standardize": "cleanup"}, "[Na]OC(=O)C", "CC(=O)[O-].[Na+]"),
        ({"standardize": "parent"}, SALT, "CC(=O)O"),
        ({"standardize": "tautomer"}, "OC=CC", "CCC=O"),
        ({"salts": "strip", "standardize": "cleanup"}, "[Na]OC(=O)C", "CC(=O)[O-].[Na+]"),
    ],
)
def test_the_graph_is_that_of_the_changed_molecule(options, smiles, expected, directed_bonds):
    dag = read(smiles, PLAIN, directed_bonds=directed_bonds, **options).dag
    assert dag.strings("graph", "smiles") == [smiles, PLAIN]
    assert dag.strings("graph", "changed_to") == [expected, None]
    assert count_changed(dag) == (expected is not None)
    plain = read(expected or smiles, PLAIN, directed_bonds=directed_bonds).dag
    assert dag.features("atom")["element"].tolist() == plain.features("atom")["element"].tolist()
    assert dag.num_nodes == plain.num_nodes


def test_parts_can_be_refused():
    result = read(SALT, PLAIN, salts="refuse")
    assert result.kept == (1,)
    assert "has 2 parts that are not bound to each other" in str(result.skipped[0])


def test_unknown_choices_are_refused():
    with pytest.raises(ConfigError, match="salts is 'stripe'. Did you mean 'strip'?"):
        SmilesAdapter(salts="stripe")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="standardize is 'all'. Use one of none, cleanup"):
        SmilesAdapter(standardize="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no feature set 'chemprop'. Did you mean"):
        SmilesAdapter(features="chemprop")
