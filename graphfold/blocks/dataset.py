"""BlockDataset: examples lowered once, batches of them whenever they are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.blocks.compiled import PASSES, CompiledModel
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.examples import has_items
from graphfold.datasets.loading.loader import GraphDataset, GraphLoader
from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.errors import shortened


class BlockDataset(GraphDataset):
    """The examples of a model, as graphs in one piece.

    `dataset[numbers]` is a planned batch of the examples with these numbers; it is cut out and
    planned by array operations.

    Args:
        model: the model.
        examples: the examples, in any iterable but a string or a dict.
        num_workers: processes that share the work of lowering them; 0 for none but this one.
        cache_dir: a folder where lowered examples are kept for the next run; None for nowhere. They
            are lowered anew if the examples have changed, or the blocks and the code of functions
            that blocks call with Python objects. What such functions read elsewhere (files, the
            time, module-level random numbers) is not noticed.
        cache_key: a name for what is in objects and functions whose content cannot be read, where
            there are such; change it when they change.

    Raises:
        BlockTypeError: if a single example is given.
        BlockValueError: if `cache_dir` is given and model or examples cannot be told from others.
        DataError: if nothing can be stored in `cache_dir`.
        GraphfoldError: if one does not fit the model; a note names it.
    """

    def __init__(
        self,
        model: CompiledModel,
        examples: Iterable[Any],
        num_workers: int = 0,
        cache_dir: str | Path | None = None,
        cache_key: str | None = None,
    ) -> None:
        examples = _listed(examples)
        if cache_dir is None:
            dag = model.lower(examples, num_workers)
        else:
            from graphfold.blocks.lowered_files import lower_or_load  # needs pyarrow

            dag = lower_or_load(model, list(examples), Path(cache_dir), cache_key, num_workers)
        super().__init__(dag, PASSES, model.policy, model.share)

    def __len__(self) -> int:
        return self.dag.num_graphs

    def loader(self, batch_size: int, shuffle: bool = False, seed: int = 0) -> GraphLoader:
        """Batches of the examples, once each.

        Args:
            batch_size: how many examples a batch has.
            shuffle: whether they come in another order each time. The first time has that of
                `seed` and epoch 0, the next that of epoch 1; `loader.sampler.set_epoch` chooses
                which comes next.
            seed: of the orders.
        """
        sampler = EpochSampler(
            torch.arange(len(self)),
            self.dag.node_ptr.diff(),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
        )
        return GraphLoader(self, sampler)


class EpochSampler(BatchSampler):
    """A `BatchSampler` that goes to the next epoch by itself, however far an epoch is read.

    Attributes:
        epoch: the one that comes next.
    """

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(super().__iter__())
        self.epoch += 1
        yield from batches


def _listed(examples: Iterable[Any]) -> Iterable[Any]:
    """The examples in a form that `lower` cannot take for a single one.

    Raises:
        BlockTypeError: if it is a single one.
    """
    if isinstance(examples, (str, bytes, Mapping)) or not has_items(examples):
        raise BlockTypeError(
            "a dataset was given one example where a list was meant: "
            f"{shortened(repr(examples))}. Put it into a list."
        )
    return list(examples) if isinstance(examples, (tuple, Tensor, np.ndarray)) else examples
