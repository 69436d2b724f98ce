"""Any graphs of several stored files are those of the whole corpus."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold.dag import TypedDAG, collate, select, validate
from graphfold.dag.compare import difference
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage import graph_file
from graphfold.datasets.storage.graph_file import ManyStrings, StoredGraphs
from graphfold.datasets.storage.packing import PackedCorpus, join, pack, pack_files
from graphfold.errors import DataError, SchemaError


@pytest.fixture
def packed(tmp_path: Path) -> list[PackedCorpus]:
    sizes = [30, 0, 1, 50]
    files = [
        write_expressions(tmp_path / f"f{k}.txt", random_expressions(size, k) or ["? 1"])
        for k, size in enumerate(sizes)
    ]
    return pack_files([(AdapterSpec(NAME), file) for file in files], tmp_path / "cache")


@pytest.fixture
def whole(packed: list[PackedCorpus]) -> TypedDAG:
    return collate([corpus.dag for corpus in packed])


NUMBERS = [[], [0], [80], [29, 30, 31], [31, 30], [5, 5, 79, 0], list(range(81))]


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_any_graphs(
    numbers: list[int], is_whole: bool, packed: list[PackedCorpus], whole: TypedDAG
) -> None:
    found = join(packed, is_whole).select(numbers)
    validate(found)
    assert difference(found, select(whole, numbers)) is None
    assert found.dictionaries == whole.dictionaries
    assert found.files == whole.files
    assert [found.place(k) for k in range(len(numbers))] == [whole.place(k) for k in numbers]


@pytest.mark.parametrize("limit", [0, 7])
def test_strings_beyond_a_limit_stay_in_their_files(
    limit: int, packed: list[PackedCorpus], whole: TypedDAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_file, "MOST_STRINGS", limit)
    stored = join(packed, is_whole=False)
    found = stored.select(range(81))
    assert isinstance(found.dictionaries["graph", "text"], ManyStrings)
    for space, name in whole.dictionaries:
        assert found.strings(space, name) == whole.strings(space, name)
    assert stored.select([3]).dictionaries["graph", "text"] is found.dictionaries["graph", "text"]


def test_a_writer_that_forgets_strings_repeats_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = random_expressions(600)
    file = write_expressions(tmp_path / "f.txt", lines * 2)
    first = pack(AdapterSpec(NAME), file, tmp_path / "all", num_workers=0).dag
    monkeypatch.setattr(graph_file, "MOST_STRINGS", 100)
    corpus = pack(AdapterSpec(NAME), file, tmp_path / "few", num_workers=0)
    strings = corpus.graphs.strings["graph", "text"]
    assert len(set(strings)) < len(strings)
    for space, name in first.dictionaries:
        assert corpus.dag.strings(space, name) == first.strings(space, name)


def test_strings_are_a_sequence(packed: list[PackedCorpus]) -> None:
    parts = [corpus.graphs.strings["graph", "text"] for corpus in packed]
    joined, listed = ManyStrings(parts), [word for part in parts for word in part]
    assert [*joined] == listed
    assert [joined[k] for k in range(len(joined))] == listed
    assert joined[-1] == listed[-1] == parts[-1][-1]
    assert joined[3:40:2] == listed[3:40:2]
    assert parts[0][1:3] == listed[1:3]
    for strings, index in ((joined, len(joined)), (parts[0], -len(parts[0]) - 1)):
        with pytest.raises(IndexError):
            strings[index]


def test_rows_and_facts(packed: list[PackedCorpus], whole: TypedDAG) -> None:
    stored = join(packed, is_whole=False)
    for space in ("node", "type:number", "relation:next"):
        assert torch.equal(stored.num_rows(space), whole.row_ptr(space).diff())
    facts = stored.facts
    validate(select(facts, []))
    assert (facts.num_graphs, facts.num_nodes) == (81, 0)
    assert torch.equal(facts.origin, whole.origin)
    torch.testing.assert_close(
        facts.graph_column("value"), whole.graph_column("value"), rtol=0, atol=0, equal_nan=True
    )
    assert facts.strings("graph", "text") == whole.strings("graph", "text")
    pieces = [*stored.chunks(torch.arange(81))]
    assert difference(collate(pieces), whole) is None


def test_files_of_different_schemas(packed: list[PackedCorpus], tmp_path: Path) -> None:
    other = AdapterSpec("brackets")
    (tmp_path / "t.txt").write_text("(S (A a) (B b))\n")
    with pytest.raises(SchemaError, match="different schemas"):
        join([*packed, pack(other, tmp_path / "t.txt", tmp_path / "cache")], True)


def test_a_copy_that_is_cut_off_while_it_is_read(
    packed: list[PackedCorpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: StoredGraphs = join(packed, is_whole=False)
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(DataError, match=r"f3\.txt: its stored copy cannot be read .* Start again"):
        stored.select([80])


def test_too_many_open_files(packed: list[PackedCorpus], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", no_more)
    with pytest.raises(DataError, match=r"too many files are open\. Allow more with ulimit -n, or"):
        graph_file.GraphFile(packed[0].stored)
