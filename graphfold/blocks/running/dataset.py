"""BlockDataset: examples that are lowered once, for any number of batches."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import collate_by_default
from graphfold.batching import Batch, build_schedule
from graphfold.blocks.block_errors import BlockIndexError, BlockTypeError, BlockValueError, quoted
from graphfold.blocks.running.compiled import PASSES, CompiledModel, is_iterable
from graphfold.blocks.running.node_types import OUTPUTS
from graphfold.blocks.running.to_graphs import Label
from graphfold.dag import Schema, TypedDAG, collate
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.store import StoreWriter, open_graphs, read_manifest
from graphfold.errors import SchemaError
from graphfold.loader import BatchSampler, GraphDataset, GraphLoader

#: The version of the layout of stored files.
FORMAT = 5

_LABELS = f"relation:{OUTPUTS}", "label"
_SCALARS = (type(None), bool, int, float, str)


class BlockDataset(GraphDataset):
    """The examples of a model, lowered to graphs.

    `dataset[numbers]` is a planned batch of the examples with these numbers, and `dataset[number]`
    of one; array operations select and plan it. It is also a dataset of torch: a `DataLoader` of
    it, or of its subsets, makes the same batches.

    Args:
        model: the model.
        examples: the examples, in any iterable but a string or a dict.
        num_workers: the number of processes that lower them; 0 for this one alone.
        cache_dir: a folder that stores lowered examples for the next run; None for no store.
        version: the name of the stored examples; another version is lowered again. Change it
            whenever the examples, the blocks or their functions of Python objects change.

    Raises:
        BlockTypeError: if a single example is given.
        BlockValueError: if there is a `cache_dir` without a version, the stored examples are of
            another number or another model, or a label cannot be stored.
        DataError: if nothing can be stored in `cache_dir`.
        GraphfoldError: if an example does not fit the model; a note names it.
    """

    def __init__(
        self,
        model: CompiledModel,
        examples: Iterable[Any],
        num_workers: int = 0,
        cache_dir: str | Path | None = None,
        version: str | None = None,
    ) -> None:
        examples = _listed(examples)
        if cache_dir is None:
            dag = model.lower(examples, num_workers)
        elif not version:
            raise BlockValueError(
                "cache_dir needs a version, which names what is kept there. Give one, and another "
                "whenever examples or blocks change."
            )
        else:
            dag = _load_or_lower(model, list(examples), Path(cache_dir), version, num_workers)
        super().__init__(dag, PASSES, model.policy, model.share)

    def __len__(self) -> int:
        return self.dag.num_graphs

    def __getitem__(self, numbers: int | slice | Sequence[int]) -> Batch:
        """A planned batch of the examples with these numbers, or of a single example.

        Args:
            numbers: a number, from the end if it is negative; a slice; or numbers from 0 on.

        Raises:
            BlockTypeError: if they are no numbers.
            BlockIndexError: if there is no example of such a number.
        """
        collate_by_default(Batch, _merge)  # in this process, which may be a worker of a DataLoader
        return super().__getitem__(self._numbers(numbers))

    def __getitems__(self, numbers: Sequence[int]) -> list[Batch]:
        """A list of one batch; a `DataLoader` calls it with all numbers of a batch."""
        return [self[numbers]]

    def _numbers(self, numbers: Any) -> list[int]:
        count = len(self)
        if isinstance(numbers, slice):
            return list(range(count)[numbers])
        try:
            array = np.asarray(numbers)
        except (TypeError, ValueError):  # of tensors on a GPU, of lists of unequal length
            array = np.array(None)
        if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
            raise BlockTypeError(
                f"a dataset has examples by number, not by {quoted(numbers)}. Give a whole number, "
                "a slice, or a list of numbers."
            )
        chosen: list[int] = array.reshape(-1).tolist()
        if array.ndim == 0 and -count <= chosen[0] < 0:
            return [chosen[0] + count]
        wrong = [number for number in chosen if not 0 <= number < count]
        if wrong:
            raise BlockIndexError(
                f"there is no example {wrong[0]} among {count}, which are counted from 0."
            )
        return chosen

    def loader(self, batch_size: int, shuffle: bool = False, seed: int = 0) -> GraphLoader:
        """Batches of all examples.

        Args:
            batch_size: the number of examples in a batch.
            shuffle: whether each epoch has another order, which depends on `seed` and the number of
                the epoch; `loader.sampler.set_epoch` sets the number of the next epoch.
            seed: the seed of the orders.
        """
        sampler = EpochSampler(
            torch.arange(len(self), device="cpu"),
            self.dag.node_ptr.diff(),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
        )
        return GraphLoader(self, sampler)


class EpochSampler(BatchSampler):
    """A `BatchSampler` that counts the epochs itself, even if an epoch is not read to its end.

    Attributes:
        epoch: the number of the next epoch.
    """

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(super().__iter__())
        self.epoch += 1
        yield from batches


def _merge(batches: Sequence[Batch], *, collate_fn_map: object = None) -> Batch:
    """Joins several batches and plans the joined one."""
    first, *others = batches
    if not others:
        return first
    dag, schedule = collate([batch.dag for batch in batches]), first.schedule
    return Batch(dag, build_schedule(dag, schedule.built_for, share=schedule.is_shared))


def _load_or_lower(
    model: CompiledModel, examples: Sequence[Any], folder: Path, version: str, num_workers: int
) -> TypedDAG:
    """The graphs of the examples: read from the store, or else lowered and stored."""
    name = hashlib.sha256(f"{FORMAT} {version}".encode()).hexdigest()
    path = folder / f"{name}.graphs"
    dag = _load(path)
    if dag is None:
        dag = model.lower(examples, num_workers)
        _store(dag, path)
    if dag.num_graphs != len(examples):
        raise BlockValueError(
            f"{path}: version '{version}' was lowered from {dag.num_graphs} examples, but there "
            f"are {len(examples)}. Give another version."
        )
    try:
        return model.widen(dag)
    except (BlockTypeError, SchemaError) as error:
        raise BlockValueError(
            f"{path}: version '{version}' was lowered by another model: {error.message} Give "
            "another version."
        ) from error


def _store(dag: TypedDAG, path: Path) -> None:
    """Writes the graphs into a new folder and renames it; several processes may do so at once."""
    labels = tuple(map(_text, dag.dictionaries[_LABELS]))
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lowering-", dir=path.parent) as folder:
            graphs = Path(folder) / "graphs"
            graphs.mkdir()
            with StoreWriter(dag.schema, graphs) as writer:
                writer.append(replace(dag, dictionaries={_LABELS: labels}))
                writer.finish(schema=dag.schema.to_dict())
            shutil.rmtree(path, ignore_errors=True)  # a damaged one
            try:
                os.rename(graphs, path)
            except OSError:
                if _load(path) is None:  # else another process was faster
                    raise


def _load(path: Path) -> TypedDAG | None:
    """The stored graphs, or None if they are absent or damaged."""
    try:
        schema = Schema.from_dict(read_manifest(path)["schema"])
        dag = open_graphs(path, schema, ())
        labels = tuple(Label(_value(json.loads(text))) for text in dag.dictionaries[_LABELS])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return replace(dag, dictionaries={_LABELS: labels})  # type: ignore[dict-item]


def _text(label: Any) -> str:
    """A label as JSON.

    Raises:
        BlockValueError: if JSON cannot represent it.
    """
    try:
        return json.dumps(_plain(label.value))
    except (TypeError, RecursionError) as error:
        raise BlockValueError(
            f"a label cannot be stored: {quoted(label.value)}. Use numbers, strings, and "
            "lists, tuples and dicts of them, or do without cache_dir."
        ) from error


def _plain(value: Any) -> Any:
    """A value as JSON can represent it; `_value` restores it, types included."""
    if type(value) in _SCALARS:
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [_plain(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.generic) and type(value.item()) in _SCALARS:
        return {"numpy": [value.dtype.str, value.item()]}
    raise TypeError(f"{type(value)}")


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "numpy":
        return np.dtype(content[0]).type(content[1])
    if kind == "dict":
        return {_value(key): _value(item) for key, item in content}
    items = map(_value, content)
    return tuple(items) if kind == "tuple" else list(items)


def _listed(examples: Iterable[Any]) -> Iterable[Any]:
    """The examples, as a list if they are a tuple, a tensor or an array.

    Raises:
        BlockTypeError: if it is a single example.
    """
    if not is_iterable(examples):
        raise BlockTypeError(
            "a dataset was given one example where a list was meant: "
            f"{quoted(examples)}. Put it into a list."
        )
    return list(examples) if isinstance(examples, (tuple, Tensor, np.ndarray)) else examples
