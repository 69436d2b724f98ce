"""Passes: what a model does with a graph, in order; all that the scheduler knows of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from graphfold.errors import ConfigError


@dataclass(frozen=True)
class Up:
    """Every node after its inputs: from the leaves to the roots.

    Args:
        edges: the acyclic edges to follow; the format has one kind, "inputs".

    Raises:
        ConfigError: if other edges are named; relations, which may be cyclic, go with `Rounds`.
    """

    edges: str = "inputs"

    def __post_init__(self) -> None:
        _require_inputs(self.edges)

    @property
    def space(self) -> str:
        """Where the columns of the edges are found in a graph."""
        return self.edges


@dataclass(frozen=True)
class Down:
    """Every node after the nodes that read it: from the roots to the leaves.

    A node's children, in this pass, are its readers. Arguments and errors as in `Up`.
    """

    edges: str = "inputs"

    def __post_init__(self) -> None:
        _require_inputs(self.edges)

    @property
    def space(self) -> str:
        """Where the columns of the edges are found in a graph."""
        return self.edges


@dataclass(frozen=True)
class Rounds:
    """Rounds of message passing: every node reads its neighbours' state of the round before.

    Args:
        relation: the relation that names the neighbours.
        rounds: how many rounds, at least one.

    Raises:
        ConfigError: if there are no rounds.
    """

    relation: str
    rounds: int

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"Rounds has rounds={self.rounds}. Ask for at least one round.")

    @property
    def space(self) -> str:
        """Where the columns of the edges are found in a graph."""
        return f"relation:{self.relation}"


Pass: TypeAlias = Up | Down | Rounds


def _require_inputs(edges: str) -> None:
    if edges != "inputs":
        raise ConfigError(
            f"Up and Down follow the inputs, not '{edges}'. Use Rounds('{edges}', rounds) for a "
            "relation."
        )
