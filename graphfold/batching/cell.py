"""The cell interface: one vertex function, written once, run once per group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor, nn

from graphfold.errors import ConfigError

if TYPE_CHECKING:
    from graphfold.batching.children import Children

#: What a cell knows of a node before its children: one tensor, or several by name.
NodeInput: TypeAlias = Tensor | Mapping[str, Tensor]
State: TypeAlias = Mapping[str, Tensor]


class Cell(nn.Module, ABC):
    """A function of one node and its children, written for a group of nodes at once.

    The engine calls `before` once over all nodes of the type, `forward` once per group (the nodes
    of one type that run together) and `after` once over all nodes of the type. A cell reads only
    its arguments and its registered parameters; any other tensor that requires a gradient is
    passed to the network as `shared` and read from `children.shared`.

    Attributes:
        fields: what a node stores, name -> width.
        arity: the number of children, or None for any number.
        reads: the fields that it reads from its children; by default its own fields.
    """

    fields: Mapping[str, int]
    arity: int | None = None
    reads: tuple[str, ...] | None = None

    def before(self, x: NodeInput) -> NodeInput:
        """What needs no children, such as the projection of the features.

        Random masks are drawn here: all nodes are present in node order, so the draw does not
        depend on the schedule.

        Shape:
            x: [num_nodes_of_type, input_size], in node order
            returns: a tensor or a mapping of tensors, [num_nodes_of_type, ...]
        """
        return x

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What needs no nodes, such as the encoding of bonds; found in `children.edge`.

        Called once, with the rows that differ among the columns of all edges, such as the kinds of
        bonds: what is computed of a few need not be computed of every edge.

        Shape:
            edge: name -> [num_kinds, ...], the columns of the edges that the pass follows
            returns: a mapping of tensors, [num_kinds, width]
        """
        return edge

    def initial(self, x: NodeInput) -> State:
        """The fields before the first round; only rounds of message passing call it.

        Shape:
            x: what `before` returned, [num_nodes_of_type, ...]
            returns: field -> [num_nodes_of_type, width]

        Raises:
            ConfigError: if the cell has no initial state of its own and no earlier pass gave one.
        """
        raise ConfigError(
            f"{type(self).__name__} has no initial state for rounds of message passing. "
            "Define initial(x), or run an earlier pass that computes its fields."
        )

    @abstractmethod
    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes of one group, from their input and their children.

        Shape:
            x: the group's rows of what `before` returned, [group_size, ...]
            returns: field -> [group_size, width], for every entry of `fields`
        """

    def after(self, state: State) -> State:
        """What no parent reads, once over all nodes of the type; joined to the state.

        Shape:
            state: field -> [num_nodes_of_type, width], in node order
            returns: further fields, [num_nodes_of_type, width]
        """
        return {}

    @property
    def read_fields(self) -> tuple[str, ...]:
        """The fields that it reads from its children."""
        if self.reads is not None:
            return self.reads
        return () if self.arity == 0 else tuple(self.fields)


def makes_tables(cell: Cell) -> bool:
    """Whether a cell reads what it makes of edges beforehand, not their columns as they are."""
    return type(cell).before_edges is not Cell.before_edges
