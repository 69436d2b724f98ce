"""Passes: what a model does with a graph, in order; all that the scheduler knows of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from graphfold.errors import ConfigError


@dataclass(frozen=True)
class _AlongInputs:
    """A pass along acyclic edges.

    Args:
        edges: the edges to follow; the format has one kind, "inputs".

    Raises:
        ConfigError: if other edges are named; relations, which may be cyclic, go with `Rounds`.
    """

    edges: str = "inputs"

    def __post_init__(self) -> None:
        if self.edges != "inputs":
            raise ConfigError(
                f"Up and Down follow the inputs, not '{self.edges}'. Use Rounds('{self.edges}', "
                "rounds) for a relation."
            )

    @property
    def space(self) -> str:
        """The space of the columns of the edges in a graph."""
        return self.edges


class Up(_AlongInputs):
    """Every node after its inputs: from the leaves to the roots."""


class Down(_AlongInputs):
    """Every node after the nodes that read it: from the roots to the leaves.

    A node's children, in this pass, are its readers.
    """


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
        """The space of the columns of the edges in a graph."""
        return f"relation:{self.relation}"


Pass: TypeAlias = Up | Down | Rounds
