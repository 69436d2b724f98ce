"""BlockDataset: examples lowered once, batches of them whenever they are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from graphfold.blocks.compiled import PASSES, CompiledModel
from graphfold.datasets.loader import GraphDataset, GraphLoader
from graphfold.datasets.sampler import BatchSampler


class BlockDataset(GraphDataset):
    """The examples of a model, as graphs in one piece.

    `dataset[numbers]` is a planned batch of the examples with these numbers; it is cut out and
    planned by array operations, in loader workers if there are any.

    Args:
        model: the model.
        examples: the examples.
        num_workers: processes that share the work of lowering them; 0 for none but this one.

    Raises:
        GraphfoldError: if one does not fit the model; a note names it.
    """

    def __init__(self, model: CompiledModel, examples: Iterable[Any], num_workers: int = 0) -> None:
        super().__init__(model.lower(examples, num_workers), PASSES, model.policy, model.share)

    def __len__(self) -> int:
        return self.dag.num_graphs

    def loader(
        self, batch_size: int, shuffle: bool = False, num_workers: int = 0, seed: int = 0
    ) -> GraphLoader:
        """Batches of the examples, once each.

        Args:
            batch_size: how many examples a batch has.
            shuffle: whether the order changes from epoch to epoch (`loader.sampler.epoch`).
            num_workers: processes that make batches; 0 for none but this one.
            seed: of the order.
        """
        sampler = BatchSampler(
            torch.arange(len(self)),
            self.dag.node_ptr.diff(),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
        )
        return GraphLoader(self, sampler, num_workers)
