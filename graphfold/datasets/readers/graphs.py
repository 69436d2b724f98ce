"""Typed graphs that were built in Python, in a file that is trained on like any corpus.

`save_graphs` writes graphs of `GraphBuilder`, `from_pyg` or `from_networkx` to a file, which
`graphfold train data=graphs data.path=FILE` and `graphfold predict RUN FILE` read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG, split, validate
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.storage.store import from_arrays, string_columns, to_arrays
from graphfold.errors import DataError, GraphError, RecordError, SchemaError, kind_of
from graphfold.files import whole_file

#: The array of a file with its schema and its strings, as JSON.
_DESCRIPTION = "description"


def save_graphs(dag: TypedDAG, path: str | Path) -> None:
    """Writes graphs to a file, an archive of NumPy arrays, whole or not at all.

    Args:
        dag: the graphs, with features, targets and weights.
        path: the file, such as "mine.npz".

    Raises:
        OSError: if it cannot be written.
    """
    strings = {name: [*dag.dictionaries[key]] for name, key in string_columns(dag.schema).items()}
    description = json.dumps({"schema": dag.schema.to_dict(), "strings": strings})
    arrays = to_arrays(dag.host)
    arrays[_DESCRIPTION] = np.frombuffer(description.encode(), np.uint8)
    with whole_file(Path(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_graphs(path: str | Path) -> TypedDAG:
    """The graphs of a file that `save_graphs` wrote; each has its number there as its line.

    Raises:
        DataError: if it is no such file.
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        description = json.loads(arrays.pop(_DESCRIPTION).tobytes())
        schema = Schema.from_dict(description["schema"])
        strings = {
            key: tuple(description["strings"][name]) for name, key in string_columns(schema).items()
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        dag = _numbered(from_arrays(schema, tensors, strings, (str(path),)))
        validate(dag)
    except (GraphError, SchemaError) as error:
        raise DataError.in_file(path, f"its graphs are damaged: {error}") from error
    except (OSError, ValueError, LookupError, TypeError, BadZipFile, EOFError) as error:
        raise DataError.in_file(
            path,
            f"it holds no graphs that can be read ({error}). Write them with "
            "graphfold.datasets.save_graphs.",
        ) from error
    return dag


def _numbered(dag: TypedDAG) -> TypedDAG:
    """The graphs, each with its number from 1 on as its line."""
    numbers = torch.arange(dag.num_graphs, device="cpu")
    origin = torch.stack([torch.zeros_like(numbers), numbers + 1, numbers], 1)
    return replace(dag, origin=origin)


class GraphsAdapter(Adapter):
    """Reads the files of `save_graphs`; a record is a graph.

    Args:
        schema: of the graphs, as `Schema.to_dict` gives it; None for that of the files.
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self._is_open = schema is None
        self.schema = Schema((NodeType("node"),)) if schema is None else Schema.from_dict(schema)

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The schema of the files, if it is not given."""
        return {"schema": load_graphs(paths[0]).schema.to_dict()} if self._is_open else {}

    def records(self, path: Path) -> Iterator[Record]:
        """One record per graph, `content` being the graph."""
        dag = load_graphs(path)
        if dag.schema != self.schema and not self._is_open:
            raise DataError.in_file(
                path,
                f"its graphs have another schema:\n{dag.schema!r}\nThose of the other files, or of "
                f"the training, have:\n{self.schema!r}\nBuild the graphs by one schema.",
            )
        if not dag.num_graphs:
            raise DataError.in_file(path, "it holds no graph. Build some.")
        for number, graph in enumerate(split(dag), start=1):
            yield Record(number, graph)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one graph; see `Adapter.parse`."""
        graph.add(record.content)

    def record_of(self, item: Any) -> Record:
        """The record of a graph; see `Adapter.record_of`.

        Raises:
            RecordError: if it is no single graph of the schema.
        """
        if not isinstance(item, TypedDAG):
            raise RecordError(f"{kind_of(item)} is no graph", "Give a TypedDAG of one graph.")
        if item.num_graphs != 1:
            raise RecordError(f"it holds {item.num_graphs} graphs", "Give graphfold.dag.split(it).")
        if item.schema != self.schema:
            raise RecordError("its schema is not that of the model", "Build it by that schema.")
        return Record(1, _numbered(item))
