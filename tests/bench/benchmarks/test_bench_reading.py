"""Benchmark reading: its variants make the same graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfold.bench.benchmarks.reading import OneByOne, make_variants, require_equal
from graphfold.dag import collate
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.table_columns import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter

RECORDS = [
    Record(line, RecordRow(smiles))
    for line, smiles in enumerate(("CCO", "bad", "C[C@H](O)N", "F/C=C/F", "c1ccccc1"), start=1)
]


CHUNKS = [RECORDS[:2], RECORDS[2:4], RECORDS[4:]]


def test_the_variants_read_the_same() -> None:
    variants = make_variants(SmilesAdapter(), Path("x"), CHUNKS)
    assert [dag.num_graphs for dag in variants["graphfold"]()] == [1, 2, 1]
    require_equal(variants)


def test_a_wrong_variant_is_refused() -> None:
    variants = make_variants(SmilesAdapter(), Path("x"), CHUNKS)
    variants["one_by_one"] = lambda: [collate(variants["graphfold"]()[:2])]
    with pytest.raises(RuntimeError, match="variant one_by_one differs from graphfold in num_gr"):
        require_equal(variants)


def test_one_by_one_has_no_way_for_many() -> None:
    adapter = SmilesAdapter()
    assert adapter.parse_many(RECORDS, "x") is not None
    assert OneByOne(adapter).parse_many(RECORDS, "x") is None
