"""Predictor: a trained model applied to records, to tables, or to strings from Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.batching.kernels.segment import segment_mean
from graphfold.dag import TypedDAG, select
from graphfold.datasets.adapter import (
    Adapter,
    ReadResult,
    Record,
    count_changed,
    read_records,
    result_or_error,
)
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_spec import UnknownValues
from graphfold.datasets.storage.content_key import unchanged
from graphfold.datasets.storage.reading import cut_file, read_chunks
from graphfold.errors import ConfigError, DataError, RecordError, did_you_mean
from graphfold.inference.frames import Frame, NewColumn, read_frame, read_list, with_reason
from graphfold.inference.pictures import Drawing, draw_graphs
from graphfold.inference.prediction import Prediction, describe
from graphfold.layers import Model
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.training.loop.checks import can_share
from graphfold.training.run.run_folder import find_checkpoint
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import MEMORY_ERRORS, halves, is_out_of_memory

#: Records that are predicted at once. Larger batches have more equal parts, which are computed
#: once: at 1,024 molecules a D-MPNN takes a tenth less time for each than at 512.
BATCH_SIZE = 1024

#: Nodes of a batch, about a few hundred megabytes of states.
MOST_NODES = 1 << 17

Answer = TypeVar("Answer")
Rows = TypeVar("Rows", Tensor, Predicted)


class Unread(NamedTuple):
    """The reason why a record could not be read, with the 1-based line of the fault."""

    line: int
    reason: str


def load(run: str | Path, trust: Collection[str] = (), **settings: Any) -> Predictor:
    """A trained model, ready to predict.

    Args:
        run: a run folder or a checkpoint file.
        trust: third-party packages that may be imported.
        **settings: keys of the config group `data` that differ from the run's.

    Raises:
        CheckpointError: if it cannot be read or trusted.
    """
    return Predictor(TrainedModel.load(find_checkpoint(Path(run)), trust), settings)


class Predictor:
    """Applies a trained model.

    Args:
        trained: the model.
        settings: keys of the config group `data` that differ from the run's.
        data: the data of the run, if they exist already; without `settings`.

    Attributes:
        adapter: the adapter of the records, without targets.
        batch_size: how many records are predicted at once: the setting, else the larger of that of
            the run and `BATCH_SIZE`.
        num_workers: processes that read files, as in `read_chunks`.
        num_changed: how many records were changed before they were predicted, so far.
        unknown: counts the values that the model has not learnt; None for no count.
    """

    def __init__(
        self,
        trained: TrainedModel,
        settings: Mapping[str, Any] | None = None,
        data: DataModule | None = None,
    ) -> None:
        data = data or trained.data({"path": ".", **(settings or {})})
        self.trained = trained
        self.adapter: Adapter = data.source.spec.make().without_targets()
        is_set = "batch_size" in (settings or {})
        self.batch_size = data.batch_size if is_set else max(data.batch_size, BATCH_SIZE)
        self.num_workers = data.num_workers
        self.num_changed = 0
        self.unknown: UnknownValues | None = None
        self.policy = data.policy
        self.share = can_share(trained.model) if data.share == "auto" else bool(data.share)

    def __repr__(self) -> str:
        return repr(self.trained).replace("TrainedModel", "Predictor", 1)

    @overload
    def predict(
        self, items: list[Any] | tuple[Any, ...] | Iterator[Any], column: str | None = None
    ) -> list[dict[str, Any]]:
        """Of a list, a list."""

    @overload
    def predict(self, items: Any, column: str | None = None) -> Any:
        """Of a table, a table."""

    def predict(self, items: Any, column: str | None = None) -> Any:
        """One prediction for each item.

        Args:
            items: a list of SMILES, RDKit molecules, or trees in the format of their files. Or a
                table: a DataFrame of pandas or polars, an Arrow table, or a mapping from names to
                columns; it is read by its columns, as `graphfold predict` reads a file.
            column: the column of a table with the records, such as trees; None for the only one.

        Returns:
            For each item, the JSON object that `graphfold predict` writes for a record:
            `prediction`, `probabilities` and `nodes` if any, and `reason`, empty for a prediction.
            `line` is the position in `items`, from 1 on. Of a table, the same table with the
            columns that `graphfold predict` adds.

        Raises:
            DataError: if `items` is a single record, such as one string, or the table lacks a
                column.
        """
        items, frame = self._items_of(items, "predict", column)
        walked = self.walk_records(self._records_of(items), self.described)
        answers = [as_prediction(answer) for _, answer in walked]
        if frame is None:
            return [answer.to_dict() for answer in answers]
        columns = self.new_columns(frame.names)
        rows = [[*answer.cells(len(columns) - 1), answer.reason] for answer in answers]
        return frame.add([c._replace(values=[r[k] for r in rows]) for k, c in enumerate(columns)])

    def new_columns(self, names: Sequence[str]) -> list[NewColumn]:
        """The columns that `predict` adds to a table, `reason` last, without values.

        Args:
            names: the columns of the table.
        """
        return with_reason(self.prediction_columns(), names)

    def prediction_columns(self) -> list[NewColumn]:
        """The columns of predictions, without `reason` and without values."""
        is_list = self.trained.head.level != "graph"
        return [NewColumn(c.name, c.type, is_list) for c in self.trained.columns]

    def embed(self, items: Any, column: str | None = None) -> Tensor:
        """[num_items, width] float32 the embedding of each item: the vector that the head reads.

        Args:
            items: as for `predict`.
            column: likewise.

        Returns:
            One row for each item, in order; a row of NaN for an item that cannot be read
            (`predict` gives the reason). If none can be read, the width is 0.

        Raises:
            DataError: as `predict`.
        """
        items, _ = self._items_of(items, "embed", column)
        walked = self.walk_records(self._records_of(items), self.embed_graphs)
        vectors = [answer for _, answer in walked]
        width = next((len(row) for row in vectors if isinstance(row, Tensor)), 0)
        unread = torch.full((width,), torch.nan)
        rows = [row if isinstance(row, Tensor) else unread for row in vectors]
        return torch.stack(rows) if rows else torch.empty(0, width)

    @property
    def module(self) -> Model:
        """The model as a module of torch, in evaluation mode on its device.

        It takes the batches of `plan`, or of the loader of a `DataModule`.
        """
        return self.trained.model

    def draw(self, item: Any) -> Drawing:
        """A picture of one item with its predictions in colour; a notebook shows it.

        Args:
            item: one of the items that `predict` takes.

        Raises:
            RecordError: if it cannot be read, predicted or drawn.
        """
        result = read_records(self.adapter, Path(), [self.adapter.record_of(item)])
        (prediction,) = predictions = self.predict_graphs(result.dag)
        (drawing,) = draw_graphs(self.trained, result.dag, predictions)
        if drawing is None:
            raise RecordError(prediction.reason)
        return drawing

    def walk(
        self, path: Path, answer: Callable[[TypedDAG], Iterable[Answer]]
    ) -> Iterator[tuple[Record, Answer | Unread]]:
        """Each record of a file with its answer, in order, in constant memory and one pass.

        Other processes read, this one answers; a file of one batch is read here, too.

        Args:
            path: the file.
            answer: gives one answer for each of some graphs, as the adapter reads them.

        Raises:
            DataError: if the file cannot be used, or changes while it is read.
            SchemaError: if its features differ from those in training.
        """
        chunks = cut_file(self.adapter, path, self.batch_size)
        with unchanged(self.adapter, [path]):
            for chunk, result in read_chunks(chunks, "skip", self.num_workers):
                yield from self._answered(chunk.records, result, answer)

    def walk_records(
        self, records: Iterable[Record], answer: Callable[[TypedDAG], Iterable[Answer]]
    ) -> Iterator[tuple[Record, Answer | Unread]]:
        """Each record of an iterable with its answer; see `walk`."""
        rest = iter(records)
        while chunk := list(islice(rest, self.batch_size)):
            result = read_records(self.adapter, Path(), chunk, on_error="skip")
            yield from self._answered(chunk, result, answer)

    def _answered(
        self,
        records: Sequence[Record],
        result: ReadResult,
        answer: Callable[[TypedDAG], Iterable[Answer]],
    ) -> Iterator[tuple[Record, Answer | Unread]]:
        good, skipped = set(result.kept), iter(result.skipped)
        self.num_changed += count_changed(result.dag)
        answers = chain.from_iterable(map(answer, _parts(result.dag)))
        for position, record in enumerate(records):
            if position in good:
                yield record, next(answers)
            else:
                error = next(skipped)
                yield record, Unread(error.line or record.line, error.fault)

    def _items_of(
        self, data: Any, verb: str, column: str | None
    ) -> tuple[Iterable[Any], Frame | None]:
        """The items in a list or in a table, and the table."""
        frame = read_frame(data, verb)
        if frame is None:
            return read_list(data, verb), None
        return frame.items(self.item_columns(frame.names, column)), frame

    def item_columns(self, names: Sequence[str], column: str | None) -> Sequence[str]:
        """The columns of a table that are read, see `Adapter.item_columns`.

        Args:
            names: the columns of the table.
            column: the column of the records; None for that of the adapter.

        Raises:
            DataError: if the table lacks one of them.
            ConfigError: if `column` is set and the run names its columns.
        """
        if column is None:
            return self.adapter.item_columns(names)
        if self.adapter.reads_tables:
            raise ConfigError(
                f"column='{column}' names the column of the records, but the run reads several of "
                "a table, by name. Load it with smiles_column=... in place of that."
            )
        if column not in names:
            raise DataError(
                f"the table has no column '{column}'.{did_you_mean(column, names)} Correct column.",
                columns=[column],
            )
        return [column]

    def _records_of(self, items: Iterable[Any]) -> Iterator[Record]:
        for number, item in enumerate(items, start=1):
            record = result_or_error(self.adapter.record_of, item)
            if isinstance(record, RecordError):
                record = Record(number, None, record)
            yield replace(record, line=number)

    def predict_graphs(self, dag: TypedDAG) -> list[Prediction]:
        """One prediction for each graph, as the adapter reads it, in one batch."""
        return list(self.described(dag))

    def described(self, dag: TypedDAG) -> Iterator[Prediction]:
        """One prediction for each graph, as an iterator; see `predict_graphs`."""
        with torch.no_grad():
            predicted = Predicted.cat(self.compute(self.plan(dag), self.trained.predict))
        added = self.adapter.added_nodes(dag)
        return describe(dag, self.trained.head, predicted, added, self.trained.columns)

    def embed_graphs(self, dag: TypedDAG) -> list[Tensor]:
        """The embedding of each graph, [width] float32, in one batch; see `embedding_rows`."""
        model = self.trained.model
        with torch.no_grad():
            rows = self.compute(self.plan(dag), lambda batch: embedding_rows(model, batch))
        return list(torch.cat(rows))

    def plan(self, dag: TypedDAG) -> Batch:
        """A batch of some graphs, as the adapter reads them, on the device of the model."""
        trained = self.trained
        encoded = trained.spec.encode(dag)
        if self.unknown is not None:
            self.unknown.add(encoded)
        # In one graph few nodes are equal: finding them takes longer than computing them.
        share = self.share and encoded.num_graphs > 1
        return trained.model.plan(encoded, self.policy, share).to(trained.device)

    def compute(self, batch: Batch, rows_of: Callable[[Batch], Rows]) -> list[Rows]:
        """The rows of a batch on the CPU, computed in the precision of the run.

        A batch that does not fit in memory is halved.

        Args:
            batch: a batch that `plan` made.
            rows_of: computes the rows of a batch, in the order of the graphs.
        """
        with self.trained.config.trainer.autocast(self.trained.device, caches_weights=True):
            return self._compute(batch, rows_of)

    def _compute(self, batch: Batch, rows_of: Callable[[Batch], Rows]) -> list[Rows]:
        try:
            return [rows_of(batch).float().cpu()]
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error) or batch.num_graphs < 2:
                raise
        parts = halves(batch, self.trained.model.plan, self.policy)
        return [rows for half in parts for rows in self._compute(half, rows_of)]


def as_prediction(answer: Prediction | Unread) -> Prediction:
    """The prediction of a record; the reason of an unread one as a `Prediction`."""
    return Prediction(*answer) if isinstance(answer, Unread) else answer


def _parts(dag: TypedDAG) -> Iterator[TypedDAG]:
    """The graphs in parts of about `MOST_NODES` nodes, so that large graphs fit in memory, too."""
    count = min(-(-dag.num_nodes // MOST_NODES), dag.num_graphs)
    if count < 2:
        yield from [dag] * count
        return
    for part in torch.arange(dag.num_graphs).chunk(count):
        yield select(dag, part)


def embedding_rows(model: Model, batch: Batch) -> Tensor:
    """[num_graphs, width] the embedding of each graph of a batch.

    It is the row of the readout; of a model that reads out every node, or every output node, the
    mean over the graph's output nodes. The two vectors of a pair are concatenated.
    """
    rows = model.rows(model.states(batch), batch).flatten(1)
    if model.head.level == "graph":
        return rows
    if model.head.level == "node":
        rows = rows.index_select(0, batch.dag.output_index)
    return segment_mean(rows, batch.dag.output_ptr)
