"""ValueBuilder: writes down the values of a cell one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from graphfold.batching.engine.compiled.values import (
    CONSTANT,
    EDGES,
    GROUP,
    MEAN_OF_GROUP,
    NODES,
    WHOLE,
    Untraceable,
    Value,
    View,
)

#: What an elementwise operation takes.
Operand: TypeAlias = View | float


class ValueBuilder:
    """Values in the order in which they are computed.

    Args:
        arity: the number of edges of each node, or None if it differs.
        label: tells what is of groups in one direction from that in the other.
    """

    def __init__(self, arity: int | None, label: str = "") -> None:
        self.arity = arity
        self.values: list[Value] = []
        self._label, self._num_of_groups = label, 0
        self._numbers: dict[float, Value] = {}

    def add(
        self,
        operation: str,
        space: str,
        shape: Sequence[int],
        inputs: Sequence[View] = (),
        name: str = "",
    ) -> View:
        """A new value, seen as a whole."""
        if space == GROUP:
            self._num_of_groups += 1
            name = f"{self._label}{self._num_of_groups}"
        value = Value(operation, space, tuple(shape), tuple(inputs), name)
        self.values.append(value)
        return value.view

    def number(self, number: float) -> View:
        """A number of the code."""
        number = float(number)
        if number not in self._numbers or number == 0:  # 0.0 equals -0.0
            self._numbers[number] = Value(CONSTANT, WHOLE, (), number=number)
        return self._numbers[number].view

    def apply(self, operation: str, *operands: Operand) -> View:
        """An elementwise operation, its operands stretched to a common shape."""
        views = [x if isinstance(x, View) else self.number(x) for x in operands]
        spaces = {view.space for view in views}
        space = next((own for own in (NODES, EDGES, GROUP) if own in spaces), None)
        if space is None:
            raise Untraceable(f"it computes {operation} of numbers alone")
        if {NODES, EDGES} <= spaces:
            views = [self.in_space(v, NODES) if v.space == EDGES else v for v in views]
        rows = [view for view in views if view.space == space]
        shape = _common_shape(rows, [view for view in views if view.space != space])
        return self.add(operation, space, shape, [view.expanded(shape) for view in views])

    def mean_of_group(self, view: View) -> View:
        """The mean over all nodes of the group.

        Raises:
            Untraceable: of what belongs to edges.
        """
        if view.space != NODES:
            raise Untraceable("it takes a mean over all edges of a group")
        return self.add(MEAN_OF_GROUP, GROUP, view.shape, [self.contiguous(view)])

    def copy(self, view: View) -> View:
        """The same numbers side by side, in memory of their own."""
        return self.add("copy", view.space, view.shape, [view])

    def contiguous(self, view: View) -> View:
        """The same, copied unless the numbers of a row lie side by side."""
        return view if view.is_contiguous else self.copy(view)

    def reshape(self, view: View, shape: Sequence[int]) -> View:
        """The same numbers in another shape, copied if need be."""
        found = view.reshaped(shape)
        return self.copy(view).reshaped(shape) if found is None else found  # type: ignore[return-value]

    def in_space(self, view: View, space: str) -> View:
        """The edges of a node side by side as a row of it, or the other way round.

        Raises:
            Untraceable: if nodes have any number of edges.
        """
        if view.space == space:
            return view
        if self.arity is None or view.space == WHOLE:
            raise Untraceable("it joins rows of nodes with rows of edges")
        if space == NODES:
            return View(
                view.value,
                NODES,
                (self.arity, *view.shape),
                (view.row, *view.steps),
                view.offset,
                self.arity * view.row,
            )
        if view.shape[:1] != (self.arity,):
            raise Untraceable("it takes rows of nodes for rows of edges")
        if self.arity * view.steps[0] != view.row:
            view = self.copy(view)
        return View(view.value, EDGES, view.shape[1:], view.steps[1:], view.offset, view.steps[0])


def _common_shape(rows: Sequence[View], whole: Sequence[View]) -> tuple[int, ...]:
    """The shape of a row to which all operands can be stretched."""
    num_dims = max(len(view.shape) for view in rows)
    if any(len(view.shape) != num_dims for view in rows):
        raise Untraceable("it stretches rows over each other")
    shapes = [view.shape for view in rows]
    for view in whole:
        own = view.shape
        if len(own) == num_dims + 1 and own[0] == 1:
            own = own[1:]
        if len(own) > num_dims:
            raise Untraceable("it stretches a tensor to fewer dimensions")
        shapes.append((1,) * (num_dims - len(own)) + own)
    sizes = []
    for dim in zip(*shapes, strict=True):
        found = {size for size in dim if size != 1}
        if len(found) > 1:
            raise Untraceable("it joins tensors of different shapes")
        sizes.append(found.pop() if found else 1)
    return tuple(sizes)
