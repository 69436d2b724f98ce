"""Model: what training, scoring and prediction know of a model, whatever it is made of."""

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

#: From graphs, and a number of processes that may share the work, to as many other graphs.
Lowering: TypeAlias = Callable[[TypedDAG, int], TypedDAG]


class Model(nn.Module, ABC):
    """A model over batches of graphs.

        batch = model.plan(dag)
        states = model.states(batch)       # of every node that it computes
        rows = model.rows(states, batch)   # [num_rows, width], as the head's `level` says
        raw = model.outputs(rows)          # model(batch) is all of this
        model.losses(raw, targets)         # [num_rows]
        predicted = model.predict(raw)     # a Predicted

    Attributes:
        head: what turns rows into losses and predictions.
        network: what runs the cells; its `engine`, its `kernel` and its `fuse` say how, and its
            `ways` how each type's cell ran.
        lowering: makes the graphs that the model computes, one for each; None if it computes the
            graphs of the data themselves.
    """

    head: Head
    network: Any

    def extra_repr(self) -> str:
        """The number of parameters; the parts say the rest, in a few lines."""
        return f"{sum(p.numel() for p in self.parameters()):,} parameters"

    @property
    @abstractmethod
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which are all that the scheduler needs of the model."""

    @property
    def networks(self) -> list[Any]:
        """All that run cells: `network`, or those of several members."""
        return [self.network]

    @property
    def lowering(self) -> Lowering | None:
        """See the class."""
        return None

    def plan(self, dag: TypedDAG, policy: str = "depth", share: bool = False) -> Batch:
        """A batch of some graphs, on the CPU.

        Args:
            dag: the graphs, encoded.
            policy: how to plan them.
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
        """The parts of its predictions, beside the value, that have a column."""
        return self.head.shown_parts

    def predict(self, raw: Tensor) -> Predicted:
        """The predictions that raw outputs stand for."""
        return self.head.predict(raw)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the loss of each row, as `Head.losses`.

        Targets become as exact as the outputs of a model in float64: many losses of torch refuse
        numbers of two kinds.
        """
        if targets.is_floating_point():
            targets = targets.to(torch.promote_types(targets.dtype, raw.dtype))
        return self.head.losses(raw, targets)

    def state_parts(self) -> list[Callable[..., Any]]:
        """The modules, and functions that are none, which compute the states."""
        others = set(self.head.modules())
        return [module for module in self.modules() if module not in others]

    @abstractmethod
    def states(self, batch: Batch) -> States:
        """The states of all nodes after all passes."""

    @abstractmethod
    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, width] what the head reads."""


@contextmanager
def cells_as_they_are(model: Model) -> Iterator[None]:
    """Compiles no cells: for a few records that takes longer than to run them."""
    with attribute_set(model.networks, "fuse", False):
        yield


@contextmanager
def attribute_set(modules: Sequence[nn.Module], name: str, value: Any) -> Iterator[None]:
    """Gives an attribute of modules another value inside."""
    before = [(module, getattr(module, name)) for module in modules]
    for module, _ in before:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, own in before:
            setattr(module, name, own)
