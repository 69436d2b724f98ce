"""Stored graphs are the graphs that were stored, and lie in the file's own memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from postfix_adapter import PostfixAdapter, random_expressions, write_expressions
from strategies import dags

from graphfold.dag import (
    Column,
    GraphBuilder,
    NodeType,
    Schema,
    TypedDAG,
    collate,
    split,
    validate,
)
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import read_records
from graphfold.datasets.storage.columns import row_counts, to_columns
from graphfold.datasets.storage.graph_file import GraphFileWriter, read_graphs, read_metadata


def write(parts: list[TypedDAG], schema: Schema, folder: Path) -> Path:
    growing = folder / "growing"
    growing.mkdir()
    with GraphFileWriter(schema, growing) as writer:
        for dag in parts:
            writer.append(to_columns(dag), row_counts(dag), dag.dictionaries)
        assert writer.num_graphs == sum(dag.num_graphs for dag in parts)
        writer.finish(folder / "graphs.graphs", {"key": "ü"})
    return folder / "graphs.graphs"


@pytest.fixture
def dag(tmp_path: Path) -> TypedDAG:
    adapter = PostfixAdapter()
    path = write_expressions(tmp_path / "f.txt", random_expressions(50))
    return read_records(adapter, path, adapter.records(path)).dag


@given(dag=dags(absent=True, outputs="some", max_graphs=5))
def test_any_graphs_come_back(dag: TypedDAG) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write([dag], dag.schema, Path(folder))
        back = read_graphs(file, dag.schema, dag.files or ("?",))
        assert difference(dag, back) is None
        validate(back)


def test_chunks_come_back_as_one(dag: TypedDAG, tmp_path: Path) -> None:
    file = write(split(dag), dag.schema, tmp_path)
    back = read_graphs(file, dag.schema, dag.files or ("?",))
    assert difference(dag, back) is None
    assert difference(dag, collate(split(back))) is None
    assert read_metadata(file) == {"key": "ü"}


def test_no_graphs_come_back(dag: TypedDAG, tmp_path: Path) -> None:
    back = read_graphs(write([], dag.schema, tmp_path), dag.schema, dag.files)
    assert back.num_graphs == 0
    validate(back)


def test_strings_that_are_no_text_of_unicode_come_back(tmp_path: Path) -> None:
    schema = Schema((NodeType("word", 0, (Column("form", "string"),)),))
    builder = GraphBuilder(schema)
    builder.output(builder.node("word", form="\udc80 \0 \n"))
    builder.finish()
    dag = builder.build()
    back = read_graphs(write([dag], schema, tmp_path), schema, dag.files)
    assert back.strings("type:word", "form") == ["\udc80 \0 \n"]


def test_a_damaged_file_is_a_value_error(dag: TypedDAG, tmp_path: Path) -> None:
    file = write([dag], dag.schema, tmp_path)
    whole = file.read_bytes()
    for size in (0, 1, 39, 40, 41, len(whole) // 2, len(whole) - 1):
        file.unlink()  # what maps it keeps the old one
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r".+"):
            read_metadata(file)
        with pytest.raises(ValueError, match=r".+"):
            read_graphs(file, dag.schema, dag.files or ("?",))
    for place in (0, len(whole) // 2, len(whole) - 1):
        file.unlink()
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            read_graphs(file, dag.schema, dag.files or ("?",))
    file.write_bytes(b"CSV, " * 100)
    with pytest.raises(ValueError, match="holds no graphs"):
        read_metadata(file)


def test_node_numbers_are_local(dag: TypedDAG) -> None:
    columns = to_columns(dag)
    parts = [to_columns(one) for one in split(dag)]
    for name, column in columns.items():
        if not name.endswith(("/form", "/text", "/side")):
            joined = torch.cat([torch.from_numpy(part[name]) for part in parts])
            torch.testing.assert_close(joined, torch.from_numpy(column), equal_nan=True)
