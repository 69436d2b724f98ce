"""CarriedGraphs: the graphs of a chunk of records on their way from one process to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from graphfold.dag import Schema, TypedDAG
from graphfold.dag.typed_dag import Dictionaries, pointers
from graphfold.datasets.adapter import ReadResult
from graphfold.datasets.storage.columns import Array, from_columns, row_counts, to_columns
from graphfold.errors import RecordError


@dataclass(frozen=True)
class CarriedGraphs:
    """A `ReadResult` of arrays and text only: torch would send each tensor as an open file.

    Args:
        columns: as from `to_columns`.
        counts: space -> [num_graphs] how many rows each graph has there.
        dictionaries: the strings of the columns of codes.
        files: what `origin` refers to.
        skipped: as in `ReadResult`.
        kept: as in `ReadResult`.
    """

    columns: Mapping[str, Array]
    counts: Mapping[str, Array]
    dictionaries: Dictionaries
    files: tuple[str, ...]
    skipped: tuple[RecordError, ...]
    kept: tuple[int, ...]

    def unpack(self, schema: Schema) -> ReadResult:
        """The result that `carry` was given; `schema` is that of its graphs."""
        row_ptr = {name: pointers(torch.from_numpy(n)) for name, n in self.counts.items()}
        columns = {name: torch.from_numpy(column) for name, column in self.columns.items()}
        num_graphs = len(self.kept)
        dag = from_columns(schema, columns, row_ptr, num_graphs, self.dictionaries, self.files)
        return ReadResult(dag, self.skipped, self.kept)


def carry(result: ReadResult) -> CarriedGraphs:
    """The graphs as arrays."""
    dag: TypedDAG = result.dag
    return CarriedGraphs(
        to_columns(dag),
        row_counts(dag),
        dag.dictionaries,
        dag.files,
        result.skipped,
        result.kept,
    )
