"""TablePredictor: a trained model that other engines send to their workers, for tables of Arrow."""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from graphfold.datasets.storage.content_key import file_hash
from graphfold.errors import CheckpointError, DataError
from graphfold.inference.predictor import Predictor, load
from graphfold.training.run.run_folder import find_checkpoint

if TYPE_CHECKING:
    import pyarrow

#: Models that a process keeps loaded: those of one pipeline.
MOST_MODELS = 4


class TablePredictor:
    """Gives tables back with the columns that `graphfold predict` adds: a function to map.

    The same rows in the same order. The numbers of a table, to their last digits, are those of the
    command for a large file with the same records in its batches, and do not depend on the tables
    before. A record that cannot be read costs only itself: it has a `reason`, and no prediction.

    An instance is small when it is pickled: it says where the checkpoint is, which has to be there
    on every machine. Each process loads it once, when the first table comes, however many
    instances it gets. Several threads may call it; they take turns.

    Args:
        run: a run folder or a checkpoint file.
        column: the column that has the records, such as trees; None for the only one, and for those
            that a run of molecules names.
        trust: third-party packages that may be imported.
        **settings: keys of the config group `data` that differ from the run's, such as
            `smiles_column` and `batch_size`.

    Raises:
        CheckpointError: if the run cannot be read or trusted.
        ConfigError: if a setting cannot be used.
    """

    def __init__(
        self,
        run: str | Path,
        column: str | None = None,
        trust: Collection[str] = (),
        **settings: Any,
    ) -> None:
        self.column = column
        path = find_checkpoint(Path(run)).absolute()
        self._model = _Model(path, file_hash(path), pickle.dumps([[*trust], settings]))
        self._model.load()  # what is wrong is told here, not by a worker

    def __repr__(self) -> str:
        return f"TablePredictor({str(self._model.path)!r})"

    def __call__(self, table: Any) -> Any:
        """The table with predictions.

        Args:
            table: an Arrow table or record batch, or what else `Predictor.predict` takes: a
                DataFrame of pandas or polars, or a mapping from names to columns.

        Returns:
            One of the same kind, with the columns of the head, and `reason`.

        Raises:
            DataError: if it is no table, or lacks a column.
            CheckpointError: if the checkpoint has changed since this instance was made.
        """
        predictor, lock = self._model.load()
        with lock:
            predicted = predictor.predict(table, self.column)
        if isinstance(predicted, list):
            raise DataError(f"a {type(table).__name__} is no table. Give its records as a column.")
        return _one_batch(predicted) if _is_batch(table) else predicted

    def stream(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Each of some record batches with predictions, one after the other."""
        return map(self, batches)

    def schema(self, table: pyarrow.Schema) -> pyarrow.Schema:
        """The schema of a table with predictions.

        Args:
            table: the schema of the table without.

        Raises:
            DataError: if a column that is read is not there.
        """
        import pyarrow

        predictor, _ = self._model.load()
        predictor.item_columns(table.names, self.column)
        for new in predictor.new_columns(table.names):
            table = table.append(pyarrow.field(new.name, new.arrow_type))
        return table


class _Model(NamedTuple):
    """A model, by all that decides what it predicts."""

    path: Path
    content: str  # the sha256 of the checkpoint
    options: bytes

    def load(self) -> tuple[Predictor, Lock]:
        """The predictor of this process, with the lock of who uses it.

        A forked process has none of its parent's threads, and OpenMP would wait for them for ever.
        """
        if os.getpid() != _PROCESS:
            torch.set_num_threads(1)
        with _LOADING:
            return _load(self)


_LOADING = Lock()

#: The process that imported this module; one that was forked from it has another number.
_PROCESS = os.getpid()


@lru_cache(MOST_MODELS)
def _load(model: _Model) -> tuple[Predictor, Lock]:
    if file_hash(model.path) != model.content:
        raise CheckpointError(
            f"{model.path}: is another checkpoint than when the TablePredictor was made. Make it "
            "anew.",
            path=str(model.path),
        )
    trust, settings = pickle.loads(model.options)
    return load(model.path, trust, **settings), Lock()


def _is_batch(table: Any) -> bool:
    import pyarrow

    return isinstance(table, pyarrow.RecordBatch)


def _one_batch(table: Any) -> Any:
    """A table that was a record batch as one again."""
    import pyarrow

    arrays = [column.combine_chunks() for column in table.columns]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=table.schema)
