"""Graphs come back from their stored columns, also chosen ones out of several files."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from postfix_adapter import NAME, PostfixAdapter, random_expressions, write_expressions
from strategies import dags

from graphfold.dag import (
    Schema,
    TypedDAG,
    collate,
    select,
    split,
    validate,
)
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage import store
from graphfold.datasets.storage.packing import pack, pack_files
from graphfold.datasets.storage.store import GraphCorpus, StoreWriter, Texts, open_graphs
from graphfold.errors import SchemaError


def stored(parts: list[TypedDAG], schema: Schema, folder: Path) -> TypedDAG:
    copy = folder / "copy"
    copy.mkdir()
    with StoreWriter(schema, copy) as writer:
        for dag in parts:
            writer.append(dag)
        writer.finish(key="ü")
    assert store.read_manifest(copy)["key"] == "ü"
    back = open_graphs(copy, schema, parts[0].files if parts else ())
    validate(back)
    return back


@pytest.fixture
def dag(tmp_path: Path) -> TypedDAG:
    adapter = PostfixAdapter()
    path = write_expressions(tmp_path / "f.txt", random_expressions(50))
    return read_records(adapter, path, adapter.records(path)).dag


@given(dag=dags(absent=True, outputs="some", max_graphs=5))
def test_any_graphs_come_back(dag):
    with tempfile.TemporaryDirectory() as folder:
        assert difference(dag, stored([dag], dag.schema, Path(folder))) is None


def test_chunks_come_back_as_one(dag, tmp_path):
    chunks = [replace(part, origin=part.origin * torch.tensor([1, 1, 0])) for part in split(dag)]
    back = stored(chunks, dag.schema, tmp_path)
    assert difference(dag, back) is None
    for space in dag.schema.spaces():
        assert torch.equal(back.row_ptr(space), dag.row_ptr(space))


def test_the_files_are_plain_arrays(dag, tmp_path):
    stored(split(dag), dag.schema, tmp_path)
    names = store.read_manifest(tmp_path / "copy")["files"]
    depth = np.load(tmp_path / "copy" / f"{names.index('depth')}.npy")
    assert depth.tolist() == dag.depth.tolist()


SIZES = [30, 0, 1, 50]


@pytest.fixture
def parts(tmp_path: Path) -> list[TypedDAG]:
    files = [
        write_expressions(tmp_path / f"f{k}.txt", random_expressions(size, k) or ["? 1"])
        for k, size in enumerate(SIZES)
    ]
    packed = pack_files([(AdapterSpec(NAME), file) for file in files], tmp_path / "cache")
    return [corpus.dag for corpus in packed]


@pytest.mark.parametrize("limit", [0, 7, store.MOST_STRINGS])
@pytest.mark.parametrize("numbers", [[], [80], [29, 30, 31, 30, 5, 5, 79, 0], list(range(81))])
def test_any_graphs_of_several_files(numbers, limit, parts, monkeypatch):
    """Also where so many strings stay in their files."""
    whole = collate(parts)
    monkeypatch.setattr(store, "MOST_STRINGS", limit)
    corpus = GraphCorpus(parts)
    found = corpus.select(numbers)
    validate(found)
    expected = select(whole, numbers)
    assert [found.place(k) for k in range(len(numbers))] == [whole.place(k) for k in numbers]
    for space, name in whole.dictionaries:
        assert found.strings(space, name) == expected.strings(space, name)
    if limit > 7:
        assert difference(found, expected) is None
    assert (corpus.num_graphs, found.files) == (81, whole.files)
    for space in ("node", "type:number", "relation:next"):
        assert torch.equal(corpus.num_rows(space), whole.row_ptr(space).diff())


def test_facts_have_no_nodes(parts):
    facts, whole = GraphCorpus(parts).facts(), collate(parts)
    assert (facts.num_graphs, facts.num_nodes) == (81, 0)
    assert torch.equal(facts.origin, whole.origin)
    assert facts.strings("graph", "text") == whole.strings("graph", "text")
    some = select(facts, [80, 3])
    expected = select(whole, [80, 3]).graph_column("value")
    torch.testing.assert_close(some.graph_column("value"), expected, equal_nan=True)


def test_a_writer_that_forgets_strings_repeats_them(tmp_path, monkeypatch):
    file = write_expressions(tmp_path / "f.txt", random_expressions(600) * 2)
    first = pack(AdapterSpec(NAME), file, tmp_path / "all", num_workers=0).dag
    monkeypatch.setattr(store, "MOST_STRINGS", 100)
    few = pack(AdapterSpec(NAME), file, tmp_path / "few", num_workers=0).dag
    texts = few.dictionaries["graph", "text"]
    assert isinstance(texts, Texts)
    assert len({*texts}) < len(texts) == len([*texts])
    assert [texts[k] for k in (0, -1)] == texts[:1] + texts[len(texts) - 1 :]
    with pytest.raises(IndexError):
        texts[len(texts)]
    for space, name in first.dictionaries:
        assert few.strings(space, name) == first.strings(space, name)


def test_files_of_different_schemas(parts, tmp_path):
    (tmp_path / "t.txt").write_text("(S (A a) (B b))\n")
    other = pack(AdapterSpec("brackets"), tmp_path / "t.txt", tmp_path / "cache").dag
    with pytest.raises(SchemaError, match="different schemas"):
        GraphCorpus([*parts, other])
