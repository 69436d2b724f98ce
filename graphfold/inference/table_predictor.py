"""TablePredictor: a trained model that other engines (Ray, Spark, Dask) send to their workers."""

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

#: Models that a process caches, for one pipeline.
MOST_MODELS = 4


class TablePredictor:
    """Adds the columns of `graphfold predict` to tables: a function to map over batches.

    Rows stay in order. The numbers of a table equal, to their last digits, those of the command for
    a large file with the same records in its batches, and do not depend on earlier tables. A record
    that cannot be read has a `reason` and no prediction.

    A pickled instance is small: it holds the path of the checkpoint, which every machine needs to
    have. Each process loads the model once, with its first table, for all instances. Several
    threads may call it; they take turns.

    Args:
        run: a run folder or a checkpoint file.
        column: the column of the records, such as trees; None for the only one, and for a run of
            molecules, which names its columns.
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
        self._model.load()  # raises errors here, not in a worker

    def __repr__(self) -> str:
        return f"TablePredictor({str(self._model.path)!r})"

    def __call__(self, table: Any) -> Any:
        """The table with predictions.

        Args:
            table: an Arrow table or record batch, a DataFrame of pandas or polars, or a mapping
                from names to columns.

        Returns:
            A table of the same kind, with the columns of the head, and `reason`.

        Raises:
            DataError: if it is no table, or lacks a column.
            CheckpointError: if the checkpoint has changed since this instance was made.
        """
        predictor, lock = self._model.load()
        with lock:
            predicted = predictor.predict(table, self.column)
        if isinstance(predicted, list):
            raise DataError(f"a {type(table).__name__} is no table. Give its records as a column.")
        import pyarrow

        if isinstance(table, pyarrow.RecordBatch):
            arrays = [column.combine_chunks() for column in predicted.columns]
            return pyarrow.RecordBatch.from_arrays(arrays, schema=predicted.schema)
        return predicted

    def stream(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Adds predictions to each of some record batches."""
        return map(self, batches)

    def schema(self, table: pyarrow.Schema) -> pyarrow.Schema:
        """The schema of a table with predictions.

        Args:
            table: the schema of the table before.

        Raises:
            DataError: if a column that is read is absent.
        """
        import pyarrow

        predictor, _ = self._model.load()
        predictor.item_columns(table.names, self.column)
        for new in predictor.new_columns(table.names):
            table = table.append(pyarrow.field(new.name, new.arrow_type))
        return table


class _Model(NamedTuple):
    """A model, identified by its checkpoint and its options."""

    path: Path
    content: str  # the sha256 of the checkpoint
    options: bytes

    def load(self) -> tuple[Predictor, Lock]:
        """The predictor of this process, and the lock that its users hold.

        A forked process lacks its parent's threads, and OpenMP would wait for them for ever.
        """
        if os.getpid() != _PROCESS:
            torch.set_num_threads(1)
        with _LOADING:
            return _load(self)


_LOADING = Lock()

#: The process that imported this module; a forked one has another number.
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
