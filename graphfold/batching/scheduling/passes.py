"""Passes: what a model does with a graph, in order; all that the scheduler knows of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphfold.errors import ConfigError, KindError

#: More rounds than this are a slip of the pen, and would run for hours.
MAX_ROUNDS = 10_000

#: The name of the ordered edges that every graph has; all others are relations.
INPUTS = "inputs"


@dataclass(frozen=True)
class _AlongEdges:
    """A pass along acyclic edges.

    Args:
        edges: "inputs", or the name of a relation that has no cycle, such as the order of words.
    """

    edges: str = INPUTS

    @property
    def relation(self) -> str | None:
        """The relation that it follows; None for the inputs."""
        return None if self.edges == INPUTS else self.edges

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation that it follows; empty for the inputs."""
        return () if self.relation is None else (self.relation,)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The space of the columns of the edges in a graph."""
        return (self.edges,) if self.relation is None else (f"relation:{self.relation}",)


class Up(_AlongEdges):
    """Every node after its inputs: from the leaves to the roots.

    Along a relation, after the sources of its edges: along `next`, from the first word to the last.
    """


class Down(_AlongEdges):
    """Every node after the nodes that read it: from the roots to the leaves.

    A node's children, in this pass, are its readers.
    """


@dataclass(frozen=True)
class Rounds:
    """Rounds of message passing: every node reads its neighbours' state of the round before.

    Args:
        relation: the relation that names the neighbours, or several relations; a cell reads the
            neighbours of one of several as `children["NAME"]`.
        rounds: how many rounds, at least one.

    Raises:
        ConfigError: if there are no rounds, or more than `MAX_ROUNDS`; if there is no relation, or
            one occurs twice.
    """

    relation: str | Sequence[str]
    rounds: int

    def __post_init__(self) -> None:
        names = self.relations
        if not names or len({*names}) < len(names):
            raise ConfigError(
                f"Rounds has the relations {[*names]}. Name at least one, and each of them once."
            )
        # Passes are compared and hashed, and a list of one relation is that relation.
        object.__setattr__(self, "relation", names if len(names) > 1 else names[0])
        if self.rounds < 1:
            raise ConfigError(f"Rounds has rounds={self.rounds}. Ask for at least one round.")
        if self.rounds > MAX_ROUNDS:
            raise ConfigError(f"Rounds has rounds={self.rounds}. Ask for at most {MAX_ROUNDS:,}.")

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations that it follows, in order."""
        return (self.relation,) if isinstance(self.relation, str) else tuple(self.relation)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The space of the columns of the edges of each relation in a graph."""
        return tuple(f"relation:{name}" for name in self.relations)


Pass: TypeAlias = Up | Down | Rounds


def check_passes(passes: object) -> None:
    """Raises KindError unless these are passes, in a list or another iterable."""
    if isinstance(passes, Pass) or not isinstance(passes, Iterable):
        raise KindError(
            f"passes is {passes!r}, but a list of passes is needed. Give a list, such as [Up()]."
        )
    for item in passes:
        if not isinstance(item, Pass):
            raise KindError(
                f"passes has {item!r}, which is no pass. Give Up(), Down() or Rounds(relation, "
                "rounds)."
            )
