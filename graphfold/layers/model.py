"""Model: the interface of all models for training, scoring and prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from graphfold._torch import refuse_script, uncompiled
from graphfold.batching import Batch, Pass, States
from graphfold.batching.batch import plan_batch, require_batch
from graphfold.batching.native.linear import NativeLinear
from graphfold.dag import TypedDAG
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head

#: From graphs, and a number of processes that share the work, to one new graph for each.
Lowering: TypeAlias = Callable[[TypedDAG, int], TypedDAG]


class Model(nn.Module, ABC):
    """A model over batches of graphs.

        batch = model.plan(dag)
        states = model.states(batch)       # of all nodes
        rows = model.rows(states, batch)   # [num_rows, width]; the head has the `level` of a row
        raw = model.outputs(rows)          # model(batch) is all of this
        model.losses(raw, targets)         # [num_rows]
        predicted = model.predict(raw)     # a Predicted

    Attributes:
        head: the last part, from rows to losses and predictions.
        network: the `Network` that runs the cells; its `execution` says how each cell ran.
        lowering: makes the graphs that the model computes, one for each graph of the data; None if
            these are the same.
    """

    head: Head
    network: Any

    def extra_repr(self) -> str:
        """The number of parameters."""
        return f"{sum(p.numel() for p in self.parameters()):,} parameters"

    @property
    @abstractmethod
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which the scheduler plans."""

    @property
    def networks(self) -> list[Any]:
        """The networks that run cells: `network`, or one of each member of an ensemble."""
        return [self.network]

    @property
    def lowering(self) -> Lowering | None:
        """Makes the graphs that the model computes; None for the graphs of the data."""
        return None

    def plan(self, dag: TypedDAG, policy: str = "depth", share: bool = False) -> Batch:
        """A batch of some graphs, on the CPU.

        Args:
            dag: the graphs, encoded.
            policy: the scheduling policy.
            share: whether equal nodes are computed once.
        """
        lowered = None if self.lowering is None else self.lowering(dag, 0)
        return plan_batch(dag, lowered, self.passes, policy, share)

    __prepare_scriptable__ = refuse_script

    @uncompiled
    def forward(self, batch: Batch) -> Tensor:
        """[num_rows, ...] the head's raw outputs."""
        require_batch(batch, "Give model.plan(dag)")
        states = self.states(batch)
        rows = self.rows(states, batch)
        with NativeLinear():
            return self.outputs(rows)

    def outputs(self, rows: Tensor) -> Tensor:
        """[num_rows, ...] the raw outputs of the head."""
        raw: Tensor = self.head(rows)
        return raw

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the predictions, without the value, that have a column."""
        return self.head.shown_parts

    def predict(self, raw: Tensor) -> Predicted:
        """The predictions from raw outputs."""
        return self.head.predict(raw)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the loss of each row, see `Head.losses`.

        For a model in float64 the targets are converted: many losses of torch refuse two dtypes.
        """
        if targets.is_floating_point():
            targets = targets.to(torch.promote_types(targets.dtype, raw.dtype))
        return self.head.losses(raw, targets)

    def state_parts(self) -> list[Callable[..., Any]]:
        """The modules and plain functions that compute the states."""
        of_head = set(self.head.modules())
        return [module for module in self.modules() if module not in of_head]

    @abstractmethod
    def states(self, batch: Batch) -> States:
        """The states of all nodes after all passes."""

    @abstractmethod
    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, width] the rows that the head reads."""


@contextmanager
def eager_cells(model: Model) -> Iterator[None]:
    """Runs cells without compiling them, which takes longer than a few records are worth."""
    with attribute_set(model.networks, "run", "eager"):
        yield


@contextmanager
def attribute_set(modules: Sequence[nn.Module], name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of modules within a `with` statement."""
    before = [(module, getattr(module, name)) for module in modules]
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, old in before:
            setattr(module, name, old)
