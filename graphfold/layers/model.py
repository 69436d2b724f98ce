"""Model: what training, scoring and prediction know of a model, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn

from graphfold._torch import refuse_script, uncompiled
from graphfold.batching import Batch, Pass, States
from graphfold.batching.batch import plan_batch
from graphfold.batching.native.linear import NativeLinear
from graphfold.dag import TypedDAG
from graphfold.layers.heads.head import Head

#: From graphs, and a number of processes that may share the work, to as many other graphs.
Lowering: TypeAlias = Callable[[TypedDAG, int], TypedDAG]


class Model(nn.Module, ABC):
    """A model over batches of graphs.

        batch = model.plan(dag)
        states = model.states(batch)       # of every node that it computes
        rows = model.rows(states, batch)   # [num_rows, width], as the head's `level` says
        raw = model.head(rows)             # model(batch) is all of this

    Attributes:
        head: what turns rows into losses and predictions.
        network: what runs the cells; its `engine`, its `kernel` and its `fuse` say how, and its
            `ways` how each type's cell ran.
        draws: whether it draws random numbers in evaluation, too.
        lowering: makes the graphs that the model computes, one for each; None if it computes the
            graphs of the data themselves.
    """

    head: Head
    network: Any
    draws: bool = False

    def extra_repr(self) -> str:
        """The number of parameters; the parts say the rest, in a few lines."""
        return f"{sum(p.numel() for p in self.parameters()):,} parameters"

    @property
    @abstractmethod
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which are all that the scheduler needs of the model."""

    @property
    def core(self) -> Model:
        """The model that computes the rows: itself, or the one that it is around."""
        return self

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
        states = self.states(batch)
        rows = self.rows(states, batch)
        with NativeLinear():
            raw: Tensor = self.head(rows)
        return raw

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
