"""Lines and records that never end: refused with their place, in little memory."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from graphfold.datasets.files import record_limit
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import ConlluAdapter
from graphfold.datasets.readers.listops import ListOpsAdapter
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import DataError

ADAPTERS = {
    "trees.txt.gz": BracketsAdapter(5),
    "sentences.conllu.gz": ConlluAdapter(),
    "expressions.tsv.gz": ListOpsAdapter(),
    "molecules.csv.gz": SmilesAdapter(),
    "molecules.smi.gz": SmilesAdapter(),
    "molecules.sdf.gz": SmilesAdapter(),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_line_that_unpacks_into_gigabytes(tmp_path, name):
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"smiles\n")
        for _ in range(64):
            file.write(b"(" * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=rf"{name}:2: the line .* more than 16,777,216 char"):
            list(ADAPTERS[name].records(path))
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("adapter", "name", "first", "line", "place"),
    [
        (BracketsAdapter(5), "trees.txt", "(1 a)\n(2 (1 x)\n", " (1 x)\n", 2),
        (BracketsAdapter(5), "trees.txt", "(1\n(1 a)\n)\n(2 (1 x)\n", "(1 x)\n", 4),
        (ConlluAdapter(), "sentences.conllu", "# a\n\n", "# a comment\n", 3),
        (SmilesAdapter(), "molecules.csv", 'smiles,text\nC,"\n', "a text without quotes\n", 2),
        (SmilesAdapter(), "molecules.sdf", "C\n$$$$\n", "  0  0\n", 3),
    ],
)
def test_a_record_that_never_ends(tmp_path, monkeypatch, adapter, name, first, line, place):
    monkeypatch.setattr(record_limit, "LONGEST_RECORD", 1000)
    path = tmp_path / name
    path.write_text(first + line * 1000)
    with pytest.raises(DataError, match=rf"{name}:{place}: the record .* more than 1,000 char"):
        list(adapter.records(path))


def test_many_records_of_one_line_are_no_long_record(tmp_path, monkeypatch):
    monkeypatch.setattr(record_limit, "LONGEST_RECORD", 100)
    path = tmp_path / "trees.txt"
    path.write_text("(1 (2 a)\n (2 b)) (1 (1 c)\n" + " (2 d)) (1 (1 e)\n" * 50 + " (1 f))\n")
    assert len(list(BracketsAdapter(5).records(path))) == 52
