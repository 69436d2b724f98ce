"""Records of any kind in a column of a table, with the values to learn beside them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.dag.assemble import to_tensor
from graphfold.dag.schema import Task
from graphfold.datasets.adapter import (
    Adapter,
    AdapterOfMany,
    ManyGraphs,
    Record,
    read_records,
    result_or_error,
)
from graphfold.datasets.files.table_columns import (
    TableTarget,
    TableWeight,
    checked_class_names,
    listed,
)
from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.record_table import RecordColumns, RecordRow
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.errors import ConfigError, RecordError


@dataclass(frozen=True)
class _Cut:
    """A row: the cells of its values, and its record if it came from Python."""

    row: RecordRow
    record: Record | None = None


class TableAdapter(AdapterOfMany):
    """Reads a table (see `open_table`) with a record in each row, and values of whole records.

    The record is a text in the format of its kind of file: a tree in brackets, a sentence in
    CoNLL-U, a SMILES. Its graph is that of the adapter of this kind, but for the targets: they are
    columns of the table, one value for a record. Targets of nodes are not read.

    Args:
        records: the name of the adapter that reads the records, such as "brackets" or "conllu".
        record_column: the column of the records.
        target_columns: the columns of the targets: one name, or a list of them.
        task: "regression": targets are finite numbers; "classification": they are classes.
        num_classes: how many classes there are (0, 1, ...); None for 2, or for as many as there are
            in a column of text. Only for classification.
        class_names: target -> the names of its classes in the cells, in order; by default, the
            different cells of a column without numbers, in alphabetical order.
        weight_column: the column that says how many records each record counts for in training.
        split_column: the column that says train, val or test, for data.split=given.
        options: options of the adapter of the records, such as {"binarize": true}.

    Raises:
        ConfigError: if a column is named twice, or options contradict each other.
    """

    reads_tables = True
    expands_folders = True
    training_options = ("weight_column", "split_column")

    def __init__(
        self,
        records: str,
        record_column: str = "record",
        target_columns: Sequence[str] | str = (),
        task: Task = "regression",
        num_classes: int | None = None,
        class_names: Mapping[str, Sequence[str]] | None = None,
        weight_column: str | None = None,
        split_column: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        names = listed(target_columns)
        if records == "table":
            raise ConfigError(
                "data.records is table, which is no kind of record. Name what reads a cell, such "
                "as brackets."
            )
        self.classes = checked_class_names(class_names or {}, names)
        self.columns = RecordColumns(
            record_column,
            targets=tuple(
                TableTarget(name, task, num_classes, class_names=self.classes.get(name, ()))
                for name in names
            ),
            weight=None if weight_column is None else TableWeight(weight_column),
            split=split_column,
            option="record_column",
        )
        self.options = dict(options or {})
        self.inner = AdapterSpec(records, self.options).make().without_targets()
        self.libraries, self.words = self.inner.libraries, self.inner.words
        self.schema = replace(
            self.inner.schema,
            node_targets=(),
            graph_features=(*self.inner.schema.graph_features, *self.columns.notes),
            graph_targets=tuple(target.column for target in self.columns.targets),
        )

    @property
    def code(self) -> tuple[str, ...]:
        """The modules of the class and of the adapter of the records."""
        return (*super().code, *self.inner.code)

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The names of classes, and the options that the records' adapter infers."""
        options: dict[str, Any] = {}
        names = self.columns.class_names(map(open_table, paths))
        if names:
            options["class_names"] = {**self.classes, **names}
        if type(self.inner).infer_options is not Adapter.infer_options:
            # It reads a file of records: this one has the texts of all tables.
            with tempfile.TemporaryDirectory() as folder:
                texts = Path(folder) / "records"
                with texts.open("w", encoding="utf-8") as file:
                    for path in paths:
                        rows = (record.content.row for record in self.records(path))
                        file.writelines(f"{row.text}\n\n" for row in rows if row.fault is None)
                inferred = self.inner.infer_options([texts])
            if inferred:
                options["options"] = {**self.options, **inferred}
        return options

    def notes(self, dag: TypedDAG) -> list[str]:
        """The notes of the records' adapter."""
        return self.inner.notes(dag)

    def added_nodes(self, dag: TypedDAG) -> Tensor | None:
        """The nodes that the records' adapter added."""
        return self.inner.added_nodes(dag)

    def without_targets(self) -> TableAdapter:
        """A copy for prediction: the same schema, but targets are neither needed nor read."""
        clone = copy.copy(self)
        clone.columns = self.columns.without_targets()
        return clone

    def records(self, path: Path) -> Iterator[Record]:
        """One record for each row of the table."""
        for record in self.columns.records(open_table(path)):
            yield replace(record, content=_Cut(record.content))

    def record_of(self, item: Any) -> Record:
        """A record as its own adapter takes it: a text, or an object."""
        return Record(1, _Cut(RecordRow(""), self.inner.record_of(item)))

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The column of the records if the table has it, else the columns of their adapter."""
        if self.columns.text in names:
            return [self.columns.text]
        return self.inner.item_columns(names)

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs:
        """All records at once, by their own adapter, and their values."""
        errors: dict[int, RecordError] = {}
        values: dict[int, dict[str, Any]] = {}
        inner: dict[int, Record] = {}
        for position, record in enumerate(records):
            cut = result_or_error(self._cut, record)
            if isinstance(cut, RecordError):
                errors[position] = cut
            else:
                inner[position], values[position] = cut
        result = read_records(self.inner, Path(file), [*inner.values()], "skip")
        positions = [*inner]
        good = [positions[number] for number in result.kept]
        bad = (position for position in positions if position not in {*good})
        errors |= {
            position: type(error)(error.fault, error.remedy)
            for position, error in zip(bad, result.skipped, strict=True)
        }
        return ManyGraphs(self._with_values(result.dag, [values[p] for p in good]), errors)

    def _cut(self, record: Record) -> tuple[Record, dict[str, Any]]:
        """The record of the inner adapter in a row, and the values of the row."""
        row: RecordRow = record.content.row
        if row.fault is not None:
            raise RecordError(row.fault)
        values = self.columns.values(row)
        inner = record.content.record or self.inner.record_of(row.text)
        return replace(inner, line=record.line), values

    def _with_values(self, dag: TypedDAG, values: Sequence[Mapping[str, Any]]) -> TypedDAG:
        """Replaces the targets of the graphs by the values of the table."""
        features = self.inner.schema.graph_features
        graph = {column.name: dag.columns["graph"][column.name] for column in features}
        dictionaries = dict(dag.dictionaries)
        for column in self.schema.spaces()["graph"][len(features) :]:
            cells = [row.get(column.name) for row in values]
            if column.dtype == "string":  # the part of the split
                words = tuple(dict.fromkeys(map(str, cells)))
                dictionaries["graph", column.name] = words
                cells = [words.index(str(cell)) for cell in cells]
                graph[column.name] = torch.tensor(cells, dtype=torch.int64)
            else:
                graph[column.name] = to_tensor("graph", column, cells)
        columns = {**dag.columns, "node": {}, "graph": graph}
        return replace(dag, schema=self.schema, columns=columns, dictionaries=dictionaries)
