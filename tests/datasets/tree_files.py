"""Files and folders for the tests of the tree adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfold.dag import TypedDAG, validate
from graphfold.datasets.adapter import Adapter, ReadResult, read_records


def corpus_folder(data_root: Path, name: str) -> Path:
    """The folder of a real corpus; skips the test where it is absent."""
    if not (data_root / name).is_dir():
        pytest.skip(f"no corpus {name} in {data_root}")
    return data_root / name


def write(folder: Path, text: str | bytes, name: str = "data.txt") -> Path:
    """A file with exactly that text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(adapter: Adapter, path: Path, on_error: str = "raise") -> ReadResult:
    """Everything that a file holds, validated."""
    result = read_records(adapter, path, adapter.records(path), on_error)
    validate(result.dag)
    return result


def inputs_of(dag: TypedDAG, node: int) -> list[int]:
    """The inputs of one node, in order."""
    return dag.input_index[dag.input_ptr[node] : dag.input_ptr[node + 1]].tolist()
