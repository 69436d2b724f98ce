"""Stored graphs are the graphs that were stored, and lie in the file's own memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from postfix_adapter import PostfixAdapter, random_expressions, write_expressions
from strategies import dags

from graphfold.dag import Schema, TypedDAG, collate, split, validate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import read_records
from graphfold.datasets.storage.arrow_file import GraphFileWriter, read_graphs, read_metadata
from graphfold.datasets.storage.columns import fields, row_counts, to_columns


def write(parts: list[TypedDAG], schema: Schema, folder: Path) -> Path:
    growing = folder / "growing"
    growing.mkdir()
    with GraphFileWriter(schema, growing) as writer:
        for dag in parts:
            writer.append(to_columns(dag), row_counts(dag), dag.dictionaries)
        assert writer.num_graphs == sum(dag.num_graphs for dag in parts)
        writer.finish(folder / "graphs.arrow", {"key": "ü"})
    return folder / "graphs.arrow"


@pytest.fixture
def dag(tmp_path: Path) -> TypedDAG:
    adapter = PostfixAdapter()
    path = write_expressions(tmp_path / "f.txt", random_expressions(50))
    return read_records(adapter, path, adapter.records(path)).dag


@given(dag=dags(absent=True, outputs="some", max_graphs=5))
def test_any_graphs_come_back(dag: TypedDAG) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write([dag], dag.schema, Path(folder))
        back = read_graphs(file, dag.schema, dag.files)
        assert difference(dag, back) is None
        validate(back)


def test_chunks_come_back_as_one(dag: TypedDAG, tmp_path: Path) -> None:
    file = write(split(dag), dag.schema, tmp_path)
    back = read_graphs(file, dag.schema, dag.files)
    assert difference(dag, back) is None
    assert difference(dag, collate(split(back))) is None
    assert read_metadata(file) == {"key": "ü"}


def test_no_graphs_come_back(dag: TypedDAG, tmp_path: Path) -> None:
    back = read_graphs(write([], dag.schema, tmp_path), dag.schema, ())
    assert back.num_graphs == 0
    validate(back)


def test_pandas_is_not_loaded(tmp_path: Path) -> None:
    path, cache = tmp_path / "f.txt", tmp_path / "cache"
    path.write_text("(a (b c) (d e))\n")
    code = f"""
import sys
from pathlib import Path
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.packing import pack
for _ in ("stored", "read back"):
    pack(AdapterSpec("brackets"), Path({str(path)!r}), Path({str(cache)!r}), num_workers=0)
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_any_arrow_library_can_read_the_file(dag: TypedDAG, tmp_path: Path) -> None:
    with pa.memory_map(str(write([dag], dag.schema, tmp_path))) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.num_rows == dag.num_graphs
    assert table.column_names == [field.name for field in fields(dag.schema)]
    row = table.slice(0, 1).to_pylist()[0]
    first = split(dag)[0]
    assert row["graph/text"] == first.strings("graph", "text")[0]
    assert row["type:number/form"] == first.strings("type:number", "form")
    assert row["op_type"] == first.op_type.tolist()
    assert row["input"] == first.input_index.tolist()


def test_columns_lie_in_the_map_and_writing_spares_the_file(dag: TypedDAG, tmp_path: Path) -> None:
    file = write([dag], dag.schema, tmp_path)
    before = file.read_bytes()
    first, second = (read_graphs(file, dag.schema, dag.files) for _ in range(2))
    sizes = first.features("number")["size"]
    assert abs(sizes.data_ptr() - first.op_type.data_ptr()) < len(before)  # both within one map
    sizes[0] = 12345.0
    assert second.features("number")["size"][0] != 12345.0
    assert file.read_bytes() == before


def test_a_damaged_file_is_a_value_error(dag: TypedDAG, tmp_path: Path) -> None:
    file = write([dag], dag.schema, tmp_path)
    file.write_bytes(file.read_bytes()[:-100])  # nothing maps it yet
    with pytest.raises(ValueError, match=r".+"):
        read_metadata(file)
    other = tmp_path / "other.arrow"
    table = pa.table({"a": [1]})
    with pa.OSFile(str(other), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match="holds no graphs"):
        read_metadata(other)


def test_node_numbers_are_local(dag: TypedDAG) -> None:
    columns = to_columns(dag)
    parts = [to_columns(one) for one in split(dag)]
    for name, column in columns.items():
        if not name.endswith(("/form", "/text", "/side")):
            joined = torch.cat([torch.from_numpy(part[name]) for part in parts])
            torch.testing.assert_close(joined, torch.from_numpy(column), equal_nan=True)
