"""The adapter interface: how one file format becomes typed DAGs."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

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

#: The graph feature that says what a record was changed to before it became a graph, if it was.
CHANGED_TO = "changed_to"


@dataclass(frozen=True)
class Record:
    """One record of a file, cut out but not yet understood.

    Args:
        line: the 1-based line where it begins.
        content: what the adapter's `parse` needs; it travels to worker processes.
        fault: why it cannot even be read as text, so that `parse` need not see it.
        columns: of a row of a table, the names of all its columns.
        cells: its texts.
        source: its bytes in the file, where `content` has not all of them.

    The last three stay in the process that cut the record, to be written back there.
    """

    line: int
    content: Any
    fault: RecordError | None = None
    columns: Sequence[str] = ()
    cells: Sequence[str] = ()
    source: bytes = b""


@dataclass(frozen=True)
class ManyGraphs:
    """The graphs of some records, parsed together.

    Args:
        dag: one graph for each good record, in order.
        errors: position -> why that record has no graph.
    """

    dag: TypedDAG
    errors: Mapping[int, RecordError]


class Adapter(ABC):
    """Reads one file format: cuts a file into records, and turns each record into one graph.

    Options are keyword arguments of `__init__`, which sets `schema`. `records` runs once per file
    and should be quick; `parse` runs in several processes. Instances are pickled.

    Attributes:
        schema: what every graph of this adapter consists of.
        libraries: distributions whose version decides what is read, such as "rdkit"; stored copies
            are rebuilt when it changes.
        words: the node type and the string feature that are the words of sentences, if there are
            any: what vectors, characters and encoders are for.
        reads_tables: whether records are rows and come with their cells, so that predictions are
            written as a table with the columns of the input.
        expands_folders: whether a folder is read as the files in it, each on its own; otherwise
            `records` gets the folder.
        text_format: the name of a format in which `write_back` gives predictions back; None if
            there is none.
        written_targets: the targets of nodes that have a place in it.
        training_options: options that name what only training reads, such as a column of weights;
            other data are scored without them.
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
        """The modules that decide what is read; stored copies are rebuilt when they change."""
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

        A record that looks wrong is cut out all the same: `parse` says what is wrong with it.

        Raises:
            DataError: if the file cannot be used as a whole.
        """

    @abstractmethod
    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes the one graph of a record: nodes, edges, outputs, and `graph.finish`.

        Raises:
            RecordError: if the record cannot be read; the caller adds file and line.
            LeftOut: if it can be read but is not asked for.
        """

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs | None:
        """The graphs of many records at once, for an adapter that has a quicker way than `parse`.

        They are the same, bit for bit.

        Args:
            records: the records, faulty ones among them.
            file: where they come from.

        Returns:
            The graphs; None if it has no such way, or cannot go it with these records.
        """
        return None

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """Options that the user left open and the files decide, such as the names of classes.

        They are kept with the run, so that other files are read in the same way.

        Args:
            paths: all files to train on, to choose the model by and to test it with.

        Raises:
            DataError: if a file cannot be used as a whole.
        """
        return {}

    def notes(self, dag: TypedDAG) -> list[str]:
        """Sentences about what was read, such as how much of it no option knows.

        `check-adapter` and `train` print them.
        """
        return []

    def added_nodes(self, dag: TypedDAG) -> Tensor | None:
        """[num_nodes] bool, the nodes that reading added and the record does not have, if any.

        Predictions for them are not shown.
        """
        return None

    def text_of(self, record: Record) -> str:
        """The text of a record, for `write_back`.

        Bytes that are not UTF-8 are surrogates, as "surrogateescape" makes them.
        """
        raise self._no_format()

    def write_back(self, text: str, predicted: PredictedNodes) -> str:
        """A record in its own format with the values that were predicted.

        Args:
            text: the record, from `text_of`.
            predicted: the values, or why there are none; that is said in the record's place.
        """
        raise self._no_format()

    def _no_format(self) -> ConfigError:
        return ConfigError(
            f"{type(self).__name__} gives predictions back in no format of its own. Leave --format "
            "out."
        )

    def without_targets(self) -> Adapter:
        """An adapter for prediction, of the same schema; it need not find targets in its input."""
        return self

    def record_of(self, item: Any) -> Record:
        """The one record of a string, which is written as in a file.

        An adapter may read other objects, too.

        Raises:
            RecordError: if the string holds no record, or several, or it is no string.
        """
        if not isinstance(item, str):
            raise RecordError(f"{item!r} is no string", "Give one record, as it stands in a file.")
        try:
            records = list(islice(self.records_of_text(item), 2))
        except DataError as error:
            remedy = "Give one record, as it stands in a file."
            raise RecordError("the text holds no record", remedy) from error
        if len(records) != 1:
            raise RecordError("the text holds several records", "Give one at a time.")
        return records[0]

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The columns of a table in Python that `record_of` reads.

        Of one column it gets the cells, of several a mapping for each row.

        Args:
            names: the columns that the table has.

        Returns:
            The columns; by default it is the only one.

        Raises:
            DataError: if the table lacks a column, or has several and none is known to be read.
        """
        if len(names) != 1:
            raise DataError(
                f"the table has {len(names)} columns, and a record is one text or object. Name its "
                "column with column='...', or give it alone.",
                columns=[*names],
            )
        return [*names]

    def records_of_text(self, text: str) -> Iterator[Record]:
        """The records of a text as of a file with it.

        Where many single records are predicted, an adapter of lines saves most of the time by
        cutting the text itself: see `text_files.text_lines`.

        Raises:
            DataError: if there is none.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text"
            path.write_text(text, encoding="utf-8")
            yield from self.records(path)


@dataclass(frozen=True)
class ReadResult:
    """The usable graphs of some records, and why the others are not among them.

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
        adapter: what understands them.
        path: the file that they were cut from, for messages.
        records: the records.
        on_error: "raise" stops at the first bad record; "skip" lists it and goes on.

    Raises:
        RecordError: with file and line, for a bad record under "raise"; also for one whose graph
            does not keep the schema.
    """
    records = list(records)
    many = adapter.parse_many(records, str(path))
    if many is not None:
        return _read_many(many, path, records, on_error)
    builder = GraphBuilder(adapter.schema, str(path))
    skipped: dict[int, RecordError] = {}
    kept: dict[int, Record] = {}
    for position, record in enumerate(records):
        error = _parse(adapter, record, builder)
        if error is None:
            kept[position] = record
            continue
        skipped[position] = error.at(path, record.line)
        if on_error != "skip" and not isinstance(error, LeftOut):
            raise skipped[position]
    try:
        dag = builder.build()
        validate(dag, is_built=True)
        return _result(dag, skipped, kept)
    except (GraphError, SchemaError) as error:
        if len(kept) == 1:
            ((position, record),) = kept.items()
            fault = error.message.removeprefix(f"{path}:{record.line}: ").rstrip(".")
            skipped[position] = RecordError(fault).at(path, record.line)
            if on_error != "skip":
                raise skipped[position] from error
            return _result(GraphBuilder(adapter.schema, str(path)).build(), skipped, {})
    # Some graph of many is at fault: build them one by one to find it.
    parts = {p: read_records(adapter, path, [record], on_error) for p, record in kept.items()}
    skipped |= {position: part.skipped[0] for position, part in parts.items() if part.skipped}
    whole = {position: part for position, part in parts.items() if not part.skipped}
    return _result(collate([part.dag for part in parts.values()]), skipped, whole)


def count_changed(dag: TypedDAG) -> int:
    """The number of graphs whose records were changed on purpose: salts stripped and the like."""
    changed = dag.columns["graph"].get(CHANGED_TO)
    return 0 if changed is None else int((changed >= 0).sum())


def _result(dag: TypedDAG, skipped: dict[int, RecordError], kept: Iterable[int]) -> ReadResult:
    return ReadResult(dag, tuple(skipped[p] for p in sorted(skipped)), tuple(kept))


def _read_many(
    many: ManyGraphs, path: Path, records: Sequence[Record], on_error: str
) -> ReadResult:
    skipped = {p: error.at(path, records[p].line) for p, error in many.errors.items()}
    for position, error in sorted(skipped.items()):
        if on_error != "skip" and not isinstance(many.errors[position], LeftOut):
            raise error
    validate(many.dag)
    return _result(many.dag, skipped, (p for p in range(len(records)) if p not in skipped))


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
