"""OuterModel: a model around another one, which runs the same cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphfold.batching import Batch, Pass, States
from graphfold.layers.model import Lowering, Model


class OuterModel(Model):
    """Base of models that change what becomes of the rows of another one.

    Args:
        inner: the model inside.
    """

    def __init__(self, inner: Model) -> None:
        super().__init__()
        self.inner = inner
        self.draws = inner.draws

    @property
    def network(self) -> Any:
        """The network of the inner model."""
        return self.inner.network

    @property
    def core(self) -> Model:
        """The model that computes the rows."""
        return self.inner.core

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of the inner model."""
        return self.inner.passes

    @property
    def lowering(self) -> Lowering | None:
        """That of the inner model."""
        return self.inner.lowering

    def forward(self, batch: Batch) -> Tensor:
        """The raw outputs of the inner model."""
        raw: Tensor = self.inner(batch)
        return raw

    def state_parts(self) -> list[Callable[..., Any]]:
        """Those of the inner model."""
        return self.inner.state_parts()

    def states(self, batch: Batch) -> States:
        """The states of the inner model."""
        return self.inner.states(batch)

    def rows(self, states: States, batch: Batch) -> Tensor:
        """The rows of the inner model."""
        return self.inner.rows(states, batch)
