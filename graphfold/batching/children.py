"""Children: what a cell sees of the nodes below it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.segment import NATIVE, Kernel
from graphfold.errors import SchemaError, ShapeError, did_you_mean


class Readable(NamedTuple):
    """The fields that a cell can read; see `FieldSources`.

    Args:
        previous: the fields that the nodes have before they run.
        children: the fields that some type has when the nodes run.
    """

    previous: frozenset[str]
    children: frozenset[str]

    def check_previous(self, field: str) -> None:
        """Raises SchemaError if the nodes do not have a field before they run."""
        if field not in self.previous:
            raise SchemaError(
                f"children.previous('{field}') reads a field that no earlier pass gives the nodes."
                f"{did_you_mean(field, self.previous)} Add a pass that computes it, or correct the "
                "name."
            )


class StateReader(ABC):
    """The source of the rows of a group's children; each engine has its own.

    Attributes:
        ptr: [group_size + 1] where each node's edges begin.
        parent: [num_child_edges] the position in the group of each edge's parent.
    """

    ptr: Tensor
    parent: Tensor

    @abstractmethod
    def rows(self, field: str) -> Tensor:
        """[num_child_edges, width] the child of each edge."""

    def stack(self, field: str, size: int, arity: int) -> Tensor:
        """[size, arity, width] the children of each node side by side."""
        rows = self.rows(field)
        return rows.view(size, arity, rows.shape[-1])

    @abstractmethod
    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        """[group_size, width] the sum over the children of each node, weighted per edge."""

    @abstractmethod
    def previous(self, field: str) -> Tensor:
        """[group_size, width] the nodes' own state before this pass or round."""

    @abstractmethod
    def child_count(self) -> Tensor:
        """[num_child_edges] how many children but itself each child has in the same pass."""

    @abstractmethod
    def is_self(self) -> Tensor:
        """[num_child_edges] 1 where the child is the node itself, else 0."""

    @abstractmethod
    def of_relation(self, relation: str) -> tuple[StateReader, Mapping[str, Tensor]]:
        """The source of the children along one of several relations, and their edges' columns."""

    @abstractmethod
    def unknown_field(self, field: str, names: Collection[str]) -> SchemaError:
        """The error of a field that no child has, among these names; it names the cell."""

    def count(self) -> Tensor:
        """[group_size] how many children each node has."""
        return self.ptr[1:] - self.ptr[:-1]

    def position(self) -> Tensor:
        """[num_child_edges] the place of each child among its node's children."""
        return torch.arange(len(self.parent), device=self.parent.device) - self.ptr[self.parent]


class Children:
    """The children of the nodes of one group, in child order.

    Edges are sorted by parent: those of the group's first node come first. Where a pass follows
    several relations, a node has its children along the first relation, then those along the
    second, and so on; `children["NAME"]` are those along one of them.

    Args:
        reader: where state is read, with the edges' layout.
        group_size: how many nodes the group has.
        arity: the number of children of every node, or None if it differs.
        edge: columns of the edges, name -> [num_child_edges, ...].
        shared: tensors that every node may read, by name.
        readable: the fields that can be read.
        relations: the relations that the pass follows; none if it follows the inputs.
        kernel: what computes the reductions.
    """

    def __init__(
        self,
        reader: StateReader,
        group_size: int,
        arity: int | None,
        edge: Mapping[str, Tensor],
        shared: Mapping[str, Tensor],
        readable: Readable,
        relations: Collection[str],
        kernel: Kernel = NATIVE,
    ) -> None:
        self._reader = reader
        self.readable = readable
        self._kernel = kernel
        self.group_size = group_size
        self.arity = arity
        self.relations = tuple(relations)
        self._edge = edge
        self.shared = shared

    def __getitem__(self, relation: str) -> Children:
        """The children along one of the relations that the pass follows.

        Raises:
            SchemaError: if the pass does not follow it.
        """
        if relation not in self.relations:
            names = ", ".join(self.relations) or "the inputs alone"
            raise SchemaError(
                f"children['{relation}'] names a relation that the pass does not follow."
                f"{did_you_mean(str(relation), self.relations)} It follows {names}. Name it in the "
                "pass, as in Rounds(['bond', 'ring'], 4), or correct the name."
            )
        if len(self.relations) == 1:
            return self
        reader, edge = self._reader.of_relation(relation)
        size, arity, shared = self.group_size, self.arity, self.shared
        return Children(reader, size, arity, edge, shared, self.readable, [relation], self._kernel)

    @property
    def edge(self) -> Mapping[str, Tensor]:
        """Columns of the edges, name -> [num_child_edges, ...].

        Raises:
            SchemaError: if the pass follows several relations, each with columns of its own.
        """
        if len(self.relations) > 1:
            raise SchemaError(
                "children.edge has the columns of one relation, but the pass follows "
                f"{', '.join(self.relations)}. Use children['{self.relations[0]}'].edge."
            )
        return self._edge

    @property
    def ptr(self) -> Tensor:
        """[group_size + 1] where each node's edges begin."""
        return self._reader.ptr

    @property
    def parent(self) -> Tensor:
        """[num_child_edges] the position in the group of each edge's parent."""
        return self._reader.parent

    @property
    def count(self) -> Tensor:
        """[group_size] how many children each node has."""
        return self._reader.count()

    @property
    def child_count(self) -> Tensor:
        """[num_child_edges] how many children each child has; a self-loop is not counted."""
        return self._reader.child_count()

    @property
    def is_self(self) -> Tensor:
        """[num_child_edges] 1 where the child is the node itself, as on a self-loop, else 0."""
        return self._reader.is_self()

    @property
    def position(self) -> Tensor:
        """[num_child_edges] the place of each child among its node's children, from 0 on."""
        return self._reader.position()

    def _check(self, field: str) -> None:
        """Raises SchemaError if no type has a field."""
        if field not in self.readable.children:
            raise self._reader.unknown_field(field, self.readable.children)

    def rows(self, field: str) -> Tensor:
        """[num_child_edges, width] the child's state on every edge."""
        self._check(field)
        return self._reader.rows(field)

    def stack(self, field: str) -> Tensor:
        """[group_size, arity, width] the children's states side by side.

        Raises:
            ShapeError: if the nodes of this type may have any number of children.
        """
        if self.arity is None:
            raise ShapeError(
                f"stack('{field}') needs a fixed number of children, but this type has any number. "
                "Use rows, sum, mean, max or attend."
            )
        self._check(field)
        return self._reader.stack(field, self.group_size, self.arity)

    def previous(self, field: str) -> Tensor:
        """[group_size, width] the nodes' own state before this pass or round; a copy.

        Raises:
            SchemaError: if the nodes do not have the field before this pass or round.
        """
        return self._previous(field).clone()

    def _previous(self, field: str) -> Tensor:
        self.readable.check_previous(field)
        return self._reader.previous(field)

    def sum(
        self,
        field: str | Tensor,
        weight: Tensor | None = None,
        own: Tensor | float | None = None,
    ) -> Tensor:
        """[group_size, width] sums over children, of a field or of values on the edges.

        A node without children gets zeros, as in `mean` and `max`. In rounds of message passing
        the children's rows of a field are never held, weighted or not.

        Shape:
            weight: [num_child_edges] a factor for each child; 1 if not given
            own: [group_size] or a number, what the node's own `previous` row of the field is times
                in the sum; it is no part of it if not given

        Raises:
            ShapeError: if `own` is given, but no field.
        """
        if isinstance(field, str):
            self._check(field)
            return self._add_own(self._reader.sum(field, weight), field, own)
        if own is not None:
            raise ShapeError("sum(values, own=...) has no own state to add. Name a field.")
        values = field if weight is None else field * weight.unsqueeze(-1)
        return self._kernel.sum(values, self.ptr, self.parent)

    def _add_own(self, total: Tensor, field: str, own: Tensor | float | None) -> Tensor:
        if own is None:
            return total
        if isinstance(own, Tensor):
            return torch.addcmul(total, self._previous(field), own.unsqueeze(1))
        return torch.add(total, self._previous(field), alpha=own)

    def mean(self, field: str | Tensor) -> Tensor:
        """[group_size, width] means over children."""
        return segment.to_mean(self.sum(field), self.count)

    def max(self, field: str | Tensor) -> Tensor:
        """[group_size, width] elementwise maxima over children."""
        rows = self.rows(field) if isinstance(field, str) else field
        return self._kernel.max(rows, self.ptr, self.parent)

    def softmax(self, score: Tensor) -> Tensor:
        """[num_child_edges, ...] `score` normalised over the children of each node."""
        weight = torch.exp(score - self.expand(self.max(score.detach())))
        return weight / self.expand(self.sum(weight))

    def attend(self, field: str | Tensor, score: Tensor) -> Tensor:
        """[group_size, width] means over children, weighted by the softmax of `score`.

        Shape:
            score: [num_child_edges] or [num_child_edges, 1]
        """
        rows = self.rows(field) if isinstance(field, str) else field
        return self.sum(self.softmax(score.reshape(-1, 1)) * rows)

    def expand(self, values: Tensor) -> Tensor:
        """[num_child_edges, ...] the parent's row of `values` on every edge."""
        return self._kernel.expand(values, self.ptr, self.parent)
