"""The cell interface: one vertex function, written once, run once per group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn

from graphfold._torch import refuse_script
from graphfold.batching.places import place_of_error
from graphfold.errors import ConfigError, KindError, add_note

if TYPE_CHECKING:
    from graphfold.batching.children import Children

#: What a cell knows of a node before its children: one tensor, or several by name.
NodeInput: TypeAlias = Tensor | Mapping[str, Tensor]
State: TypeAlias = Mapping[str, Tensor]

#: The part of x that is 1 for the nodes of graphs and 0 for those of padding.
REAL = "real"


class Cell(nn.Module, ABC):
    """A function of one node and its children, written for a group of nodes at once.

    The engine calls `before` once over all nodes of the type, `forward` once per group (the nodes
    of one type that run together) and `after` once over all nodes of the type. A cell reads only
    its arguments and its registered parameters; any other tensor that requires a gradient is
    passed to the network as `shared` and read from `children.shared`.

    Attributes:
        fields: what a node stores, name -> width.
        arity: the number of children, or None for any number.
        reads: the fields that it reads from its children; by default its own fields. Every child
            must have them. A field that it does not list is zero for children of types without it.
        reads_real: whether it takes statistics over nodes. In padded batches, what `before` returns
            then gets one more part, `REAL`, [num_nodes_of_type, 1].
    """

    fields: Mapping[str, int]
    arity: int | None = None
    reads: tuple[str, ...] | None = None
    reads_real: bool = False
    _types: tuple[str, ...] = ()  # the node types that a network gives it; for messages

    __prepare_scriptable__ = refuse_script

    def __call__(self, x: NodeInput, children: Children) -> State:
        """Calls `forward`; what it raises gets a note of the cell, the type and the shapes."""
        try:
            state: State = super().__call__(x, children)
        except Exception as error:  # whatever the code of a user raises
            self.note_call(error, self._describe_inputs(x, children))
            raise
        return state

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; a module or a parameter needs `super().__init__()` before it."""
        try:
            super().__setattr__(name, value)
        except AttributeError as error:
            if "_modules" in self.__dict__:
                raise
            raise KindError(
                f"{type(self).__name__} sets '{name}' before it calls super().__init__(), which "
                "every module needs. Call it first in __init__."
            ) from error

    # A cell decides what `x` is, one tensor or several by name: the annotations of its own methods
    # say it, so those of this class leave it open to type checkers.

    def before(self, x: Any) -> Any:
        """Computes what needs no children, such as the projection of the features.

        Random masks are drawn here: all nodes are present in node order, so the draw does not
        depend on the schedule.

        Shape:
            x: [num_nodes_of_type, input_size], in node order
            returns: a tensor or a mapping of tensors, [num_nodes_of_type, ...]
        """
        return x

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Computes what needs no nodes, such as the encoding of bonds; found in `children.edge`.

        Called once, with the rows that differ among the columns of all edges, such as the kinds of
        bonds: what is computed of a few need not be computed of every edge.

        Shape:
            edge: name -> [num_kinds, ...], the columns of the edges that the pass follows
            returns: a mapping of tensors, [num_kinds, width]
        """
        return edge

    def initial(self, x: Any) -> State:
        """The fields before the first round; only rounds of message passing call it.

        Of the type's cells it is that of the first round which is called, if no earlier pass gave
        all of its fields; what an earlier pass gave counts more.

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
    def forward(self, x: Any, children: Children) -> State:
        """The state of the nodes of one group, from their input and their children.

        Shape:
            x: the group's rows of what `before` returned, [group_size, ...]
            returns: field -> [group_size, width], for every entry of `fields`
        """

    def after(self, state: State) -> State:
        """Computes what no parent reads, once over all nodes of the type; joined to the state.

        Shape:
            state: field -> [num_nodes_of_type, width], in node order
            returns: further fields, [num_nodes_of_type, width]
        """
        return {}

    def note_call(self, error: Exception, inputs: str) -> None:
        """Adds the cell, its types and its inputs to an error, and the line of its code."""
        types = " and ".join(f"'{name}'" for name in self._types)
        owner = f"{type(self).__name__} of type {types}" if types else type(self).__name__
        add_note(error, f"in {owner}{inputs}")
        assert error.__traceback__ is not None
        place = place_of_error(error, error.__traceback__.tb_frame.f_code)
        if place is not None:
            add_note(error, f"at {place}")

    def _describe_inputs(self, x: NodeInput, children: Children) -> str:
        inputs = {"x": x} if isinstance(x, Tensor) else {f"x['{n}']": part for n, part in x.items()}
        fields = [name for name in self.read_fields if name in children.readable.children]
        inputs |= {f"children's {name}": children.rows(name) for name in fields}
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
        return f", called with a group of {children.group_size}: {shapes}"

    @property
    def read_fields(self) -> tuple[str, ...]:
        """The fields that it reads from its children."""
        if self.reads is not None:
            return self.reads
        return () if self.arity == 0 else tuple(self.fields)


def makes_tables(cell: Cell) -> bool:
    """True if a cell overrides `before_edges`, and so reads tables instead of columns of edges."""
    return type(cell).before_edges is not Cell.before_edges
