"""The adapter interface: how one file format becomes typed DAGs."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphfold.dag import GraphBuilder, Schema, TypedDAG, collate, validate
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.errors import (
    ConfigError,
    DataError,
    GraphError,
    LeftOut,
    RecordError,
    SchemaError,
)

Result = TypeVar("Result")

#: Level -> the column with the number of a node or an edge in its record; see `Adapter.numbered`.
NUMBERS = {"node": "number of the node", "edge": "number of the edge"}

#: The graph feature with the text that a record was changed to before parsing, if it was.
CHANGED_TO = "changed_to"


@dataclass(frozen=True)
class Record:
    """One record of a file, cut out but not parsed.

    Args:
        line: the 1-based line where it begins.
        content: the input of the adapter's `parse`; it is sent to worker processes.
        fault: an error of the text itself; such a record is not parsed.
        columns: of a row of a table, the names of all its columns.
        cells: its texts.
        source: its bytes in the file, where `content` lacks some.
        features: level -> its features from elsewhere, see `features.features_from`.

    Columns, cells and source stay in the process that cut the record and writes it back.
    """

    line: int
    content: Any
    fault: RecordError | None = None
    columns: Sequence[str] = ()
    cells: Sequence[str] = ()
    source: bytes = b""
    features: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ManyGraphs:
    """The graphs of some records, parsed together.

    Args:
        dag: one graph for each good record, in order.
        errors: position -> the error of a record without a graph.
    """

    dag: TypedDAG
    errors: Mapping[int, RecordError]


class Adapter(ABC):
    """Reads one file format: cuts a file into records, and turns each record into one graph.

    Options are keyword arguments of `__init__`, which sets `schema`. `records` runs once per file
    and should be quick; `parse` runs in several processes. Instances are pickled.

    Attributes:
        schema: of all graphs of this adapter.
        libraries: distributions, such as "rdkit", on whose version the graphs depend; stored copies
            are rebuilt when it changes.
        words: the node type and the string feature of the words of sentences, which vectors,
            characters and encoders read; None without words.
        reads_tables: whether records are rows and come with their cells, so that predictions are
            written as a table with the columns of the input.
        expands_folders: whether each file of a folder is read by itself; otherwise `records` gets
            the folder.
        text_format: the name of the format in which `write_back` writes predictions; None without
            such a format.
        written_targets: the targets of nodes that the format has a place for.
        training_options: options of training alone, such as a column of weights; other data are
            scored without them.
    """

    schema: Schema
    libraries: tuple[str, ...] = ()
    words: tuple[str, str] | None = None
    reads_tables: bool = False
    expands_folders: bool = False
    text_format: str | None = None
    written_targets: Collection[str] = ()
    training_options: Collection[str] = ()

    @property
    def code(self) -> tuple[str, ...]:
        """The modules on which the graphs depend; stored copies are rebuilt when they change."""
        return (type(self).__module__,)

    def sources(self, path: Path) -> list[Path]:
        """The files that `records(path)` reads; a stored copy is rebuilt when one changes.

        By default the file itself, or the files directly in a folder.
        """
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.iterdir() if file.is_file())

    @abstractmethod
    def records(self, path: Path) -> Iterator[Record]:
        """The records of a file (or folder), in order.

        A faulty record is cut out, too; `parse` reports its fault.

        Raises:
            DataError: if the file cannot be used as a whole.
        """

    @abstractmethod
    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes the one graph of a record: nodes, edges, outputs, and `graph.finish`.

        Raises:
            RecordError: if the record cannot be read; the caller adds file and line.
            LeftOut: if it can be read but is of no use, such as a row without a measured target.
        """

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs | None:
        """The graphs of many records at once, if that is quicker than `parse`; bit for bit equal.

        Args:
            records: the records, without those that have a fault.
            file: where they come from.

        Returns:
            The graphs; None to have `parse` called for each record.
        """
        return None

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """Options that follow from the files where the user left them open, such as class names.

        They are stored with the run, so that other files are read in the same way.

        Args:
            paths: all files to train on, to choose the model by and to test it with.

        Raises:
            DataError: if a file cannot be used as a whole.
        """
        return {}

    def notes(self, dag: TypedDAG) -> list[str]:
        """Sentences about the graphs that `check-adapter` and `train` print."""
        return []

    def added_nodes(self, dag: TypedDAG) -> Tensor | None:
        """[num_nodes] bool, the nodes that reading added to the record; None without such nodes.

        Predictions for them are not shown.
        """
        return None

    def text_of(self, record: Record) -> str:
        """The text of a record, for `write_back`.

        Bytes that are not UTF-8 are surrogates, as "surrogateescape" makes them.
        """
        raise self._no_format()

    def write_back(self, text: str, predicted: PredictedNodes) -> str:
        """A record in the format of the adapter, with predicted values.

        Args:
            text: the record, from `text_of`.
            predicted: the values, or a reason, which is written in place of the record.
        """
        raise self._no_format()

    def _no_format(self) -> ConfigError:
        return ConfigError(
            f"{type(self).__name__} gives predictions back in no format of its own. Leave --format "
            "out."
        )

    def named_texts(self, record: Record) -> Mapping[str, str]:
        """The texts of a record that have a name, by default the cells of a row.

        Features from elsewhere are read from them, or found by one of them.
        """
        return dict(zip(record.columns, record.cells, strict=True))

    def numbered(self) -> Adapter:
        """An adapter of the same graphs whose nodes and edges have the columns of `NUMBERS`.

        By default this one: nodes of the first type are in the order of the record.
        """
        return self

    def without_targets(self) -> Adapter:
        """An adapter for prediction, of the same schema, which reads records without targets."""
        return self

    def record_of(self, item: Any) -> Record:
        """The record in a string, which is written as in a file; adapters may read other objects.

        Raises:
            RecordError: if the string holds no record, or several, or it is no string.
        """
        remedy = "Give one record, as it stands in a file."
        if not isinstance(item, str):
            raise RecordError(f"{item!r} is no string", remedy)
        try:
            records = list(islice(self.records_of_text(item), 2))
        except DataError as error:
            raise RecordError("the text holds no record", remedy) from error
        if len(records) != 1:
            raise RecordError("the text holds several records", "Give one at a time.")
        return records[0]

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The columns of a table in Python that `record_of` reads; by default the only one.

        `record_of` gets the cells of one column, or for each row a mapping of several.

        Args:
            names: the columns of the table.

        Raises:
            DataError: if the table lacks a column, or has several by default.
        """
        if len(names) != 1:
            raise DataError(
                f"the table has {len(names)} columns, and a record is one text or object. Name its "
                "column with column='...', or give it alone.",
                columns=[*names],
            )
        return [*names]

    def records_of_text(self, text: str) -> Iterator[Record]:
        """The records of a text, by default through a temporary file.

        An adapter of lines predicts single records faster if it cuts the text itself: see
        `text_files.text_lines`.

        Raises:
            DataError: if the text holds none.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text"
            path.write_text(text, encoding="utf-8")
            yield from self.records(path)


class AdapterOfMany(Adapter):
    """An adapter that parses many records at once, and one as many."""

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one record; see `Adapter.parse`."""
        many = self.parse_many([record], graph.file)
        for error in many.errors.values():
            raise error
        graph.add(many.dag)

    @abstractmethod
    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs:
        """The graphs of many records at once; see `Adapter.parse_many`."""


@dataclass(frozen=True)
class ReadResult:
    """The usable graphs of some records, and the errors of the others.

    Args:
        dag: the graphs, in the order of their records.
        skipped: one error for each record without a graph, in the order of these records.
        kept: the positions of the records that have a graph.
    """

    dag: TypedDAG
    skipped: tuple[RecordError, ...]
    kept: tuple[int, ...]


def read_records(
    adapter: Adapter, path: Path, records: Iterable[Record], on_error: str = "raise"
) -> ReadResult:
    """Parses records into one `TypedDAG`.

    Args:
        adapter: the adapter of their file.
        path: the file that they were cut from, for messages.
        records: the records.
        on_error: "raise" stops at the first bad record; "skip" lists it and goes on.

    Raises:
        RecordError: with file and line, for a bad record under "raise"; also for one whose graph
            does not keep the schema.
    """
    records = list(records)
    sound = [p for p, record in enumerate(records) if record.fault is None]
    many = adapter.parse_many([records[p] for p in sound], str(path))
    if many is not None:
        faults = {p: record.fault for p, record in enumerate(records) if record.fault is not None}
        faults |= {sound[number]: error for number, error in many.errors.items()}
        skipped = {p: error.at(path, records[p].line) for p, error in faults.items()}
        for _, error in sorted(skipped.items()):
            if on_error != "skip" and not isinstance(error, LeftOut):
                raise error
        validate(many.dag)
        return _result(many.dag, skipped, (p for p in range(len(records)) if p not in skipped))
    builder = GraphBuilder(adapter.schema, str(path))
    skipped, good = {}, dict[int, Record]()
    for position, record in enumerate(records):
        fault = _parse(adapter, record, builder)
        if fault is None:
            good[position] = record
            continue
        skipped[position] = fault.at(path, record.line)
        if on_error != "skip" and not isinstance(fault, LeftOut):
            raise skipped[position]
    try:
        dag = builder.build()
        validate(dag, is_built=True)
        return _result(dag, skipped, good)
    except (GraphError, SchemaError) as error:
        if len(good) == 1:
            ((position, record),) = good.items()
            text = error.message.removeprefix(f"{path}:{record.line}: ").rstrip(".")
            skipped[position] = RecordError(text).at(path, record.line)
            if on_error != "skip":
                raise skipped[position] from error
            return _result(GraphBuilder(adapter.schema, str(path)).build(), skipped, {})
    # One graph of many is at fault: build them one by one to find it.
    parts = {p: read_records(adapter, path, [record], on_error) for p, record in good.items()}
    skipped |= {position: part.skipped[0] for position, part in parts.items() if part.skipped}
    positions = (position for position, part in parts.items() if not part.skipped)
    return _result(collate([part.dag for part in parts.values()]), skipped, positions)


def result_or_error(function: Callable[..., Result], *arguments: Any) -> Result | RecordError:
    """The result of a function, or the RecordError that it raises."""
    try:
        return function(*arguments)
    except RecordError as error:
        return error


def count_changed(dag: TypedDAG) -> int:
    """The number of graphs of records that an option changed, such as stripped salts."""
    changed = dag.columns["graph"].get(CHANGED_TO)
    return 0 if changed is None else int((changed >= 0).sum())


def _result(
    dag: TypedDAG, skipped: Mapping[int, RecordError], positions: Iterable[int]
) -> ReadResult:
    return ReadResult(dag, tuple(skipped[p] for p in sorted(skipped)), tuple(positions))


def _parse(adapter: Adapter, record: Record, builder: GraphBuilder) -> RecordError | None:
    if record.fault is not None:
        return record.fault
    before = builder.num_graphs
    try:
        adapter.parse(record, builder)
    except RecordError as error:
        builder.discard()
        return error
    except (GraphError, SchemaError) as error:
        builder.discard()
        return RecordError(error.message.rstrip("."))
    if builder.num_graphs != before + 1:
        raise SchemaError(
            f"{type(adapter).__name__}.parse finished {builder.num_graphs - before} graphs for one "
            "record. Call graph.finish exactly once."
        )
    return None
