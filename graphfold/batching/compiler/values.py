"""Values of a traced cell: what it computes for every node or edge, and views of that.

A cell is a graph of `Value`s. Each has memory of its own, one contiguous row for every node or edge
of a block; or, if it is `whole`, one row for all. A `View` only arranges a value: slices, reshapes
and expanded dimensions cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from typing_extensions import Self

T = TypeVar("T")

#: What the rows of a value belong to; of a group or the whole there is one row.
NODES, EDGES, GROUP, WHOLE = "nodes", "edges", "group", "whole"


class Untraceable(Exception):
    """A cell that cannot be compiled, with the reason."""


class Unwritable(Untraceable):
    """A cell that one backend cannot run, with the reason; another backend may."""


#: What operations do: give what a cell is given; copy rows of other nodes, of tables, or of an
#: edge's node; compute whole rows; multiply rows by a weight; take the mean over all nodes of a
#: group; add up over all rows, which has no memory of its own; or compute number by number.
GIVEN, COPIED, ON_ROWS, PRODUCT, OF_GROUP, SINK, BY_NUMBER = (
    *("given", "copied", "on rows", "product", "of group", "sink", "by number"),
)
#: What it costs to compute again what forward has computed: nothing, as it lies somewhere or is one
#: number; as much as to read it; of edges, of which there are many, as much, too; or more.
NOTHING, LITTLE, LITTLE_OF_EDGES, MUCH = range(4)


@dataclass(frozen=True, eq=False)
class Operation:
    """One way to compute a value; all of them are in `operations`.

    Args:
        name: in messages, of the function of native code, and of torch's if that has one.
        kind: what it does, such as `BY_NUMBER`.
        rule: the cotangents of its inputs, see `operations`; None if it has none.
        cost: of computing it again, such as `MUCH`.
        native: the name of the function of native code, if that has another.
        triton: the same of `x`, `y` and `z` in Triton; empty where torch computes it.
        source: of what a cell is given, the kind of the buffer where it lies and the space there.
        fetched: of rows that lie elsewhere, the kind of their buffer and the array of integers that
            names them.
        gradient: of both, the kind of the buffer where its gradient goes and the space there.
        neutral: the second operand that leaves the first one as it is.
        is_truth: whether it computes truth values.
    """

    name: str
    kind: str
    rule: Callable[..., Iterable[tuple[View, View]]] | None = None
    cost: int = MUCH
    native: str = ""
    triton: str = ""
    source: tuple[str, int] | None = None
    fetched: tuple[str, str] | None = None
    gradient: tuple[str, int] | None = None
    neutral: float | None = None
    is_truth: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def is_read(self) -> bool:
        """True if it reads what lies outside of the cell, and may have a gradient."""
        return self.source is not None or self.fetched is not None


#: Numbers that are the same for all rows: of parameters, or of the code.
CONSTANT = Operation("constant", GIVEN)
#: The same numbers side by side.
COPY = Operation("copy", BY_NUMBER, lambda b, v, g: [(v.inputs[0], g)])
#: The mean over all nodes of a group.
MEAN_OF_GROUP = Operation("mean_of_group", OF_GROUP)


@dataclass(eq=False)
class Value:
    """One step of a cell.

    Args:
        operation: what computes it.
        space: NODES, EDGES, GROUP or WHOLE.
        shape: of one row.
        inputs: what it is computed from.
        name: of a source, the field, column or part of x that it is; of a group, its own.
        number: of a constant that is a number of the code, that; of rows side by side, the
            dimension in which they are; of sums of cotangents, the views where these go.
    """

    operation: Operation
    space: str
    shape: tuple[int, ...]
    inputs: tuple[View, ...] = ()
    name: str = ""
    number: Any = None

    @property
    def size(self) -> int:
        """The number of numbers of a row."""
        return math.prod(self.shape)

    @property
    def literal(self) -> float | None:
        """The number of the code that it is, if it is one."""
        return self.number if self.operation is CONSTANT else None

    @property
    def view(self) -> View:
        """All of it."""
        row = 0 if self.space in (GROUP, WHOLE) else self.size
        return View(self, self.space, self.shape, contiguous(self.shape), 0, row)


@dataclass(frozen=True, eq=False)
class View:
    """A value, arranged.

    Args:
        value: what it looks at.
        space: what its rows belong to. With a fixed number of children, their rows side by side are
            a row of the node.
        shape: of one row.
        steps: from one number to the next in each dimension.
        offset: of the first number in a row.
        row: from one row to the next.
    """

    value: Value
    space: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int
    row: int

    def arranged(
        self, shape: Sequence[int], steps: Sequence[int], offset: int | None = None
    ) -> Self:
        """A view of the same value with other shape or strides."""
        offset = self.offset if offset is None else offset
        return type(self)(self.value, self.space, tuple(shape), tuple(steps), offset, self.row)

    @property
    def is_contiguous(self) -> bool:
        """True if the numbers of a row lie side by side."""
        return lies_flat(self.shape, self.steps)

    @property
    def stretched(self) -> list[bool]:
        """For each dimension, whether all of it is the same number."""
        return [step == 0 and size > 1 for size, step in zip(self.shape, self.steps, strict=True)]

    @property
    def is_all(self) -> bool:
        """True if it is all of its value, as it lies."""
        size = math.prod(self.shape)
        rows = self.row == size or self.space == WHOLE
        whole = size == self.value.size or (self.space != self.value.space and rows)
        return self.offset == 0 and self.is_contiguous and rows and whole

    def cut(self, parts: Iterable[View], dim: int) -> Iterator[tuple[View, Self]]:
        """Each of some views that lie here side by side along a dimension, and its place here."""
        start = 0
        for part in parts:
            shape = (*self.shape[:dim], part.shape[dim], *self.shape[dim + 1 :])
            yield part, self.arranged(shape, self.steps, self.offset + start * self.steps[dim])
            start += part.shape[dim]

    def expanded(self, shape: Sequence[int]) -> Self:
        """Stretched to a shape, as torch does; a whole value may have a leading 1 for its rows."""
        own, steps = self.shape, self.steps
        while self.space == WHOLE and len(own) > len(shape) and own[0] == 1:
            own, steps = own[1:], steps[1:]
        missing = len(shape) - len(own)
        if missing < 0:
            raise Untraceable("it stretches a tensor to fewer dimensions")
        sizes = zip(shape[missing:], own, steps, strict=True)
        new = [0 if size == 1 and wanted != 1 else step for wanted, size, step in sizes]
        return self.arranged(shape, [*[0] * missing, *new])


def covers(region: View, grad: View) -> bool:
    """True if the cotangent of a region covers its whole value, number by number."""
    value = region.value
    is_whole = region.is_all and (region.space, region.shape) == (value.space, value.shape)
    return is_whole and (grad.space, grad.shape) == (value.space, value.shape)


def first_copied(value: Value, regions: Sequence[View]) -> list[str] | None:
    """For each region "copy" if nothing has been written there, "accumulate" if all of it has been.

    None if one is neither, or if something is left: then zeros come first.
    """
    size, names = value.size, []
    # Regions of another space hold those of all edges of a node, one after the other.
    rows = [region.row // max(size, 1) for region in regions if region.space != value.space]
    arity = max([1, *rows])
    numbers, seen = np.arange(arity * size), np.zeros(arity * size, dtype=np.bool_)
    for region in regions:
        repeated = arity if region.space == value.space else 1
        places = np.lib.stride_tricks.as_strided(
            numbers[region.offset :],
            (repeated, *region.shape),
            [numbers.itemsize * step for step in (size, *region.steps)],
            writeable=False,
        )
        is_new = not seen[places].any() and len(np.unique(places)) == places.size
        if not is_new and not seen[places].all():
            return None
        names.append("copy" if is_new else "accumulate")
        seen[places] = True
    return names if seen.all() else None


def lies_flat(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """True if the numbers of a row lie side by side."""
    pairs = zip(shape, steps, contiguous(shape), strict=True)
    return all(size == 1 or step == want for size, step, want in pairs)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


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
        operation: Operation,
        space: str,
        shape: Sequence[int],
        inputs: Sequence[View] = (),
        name: str = "",
        number: Any = None,
    ) -> View:
        """A new value, seen as a whole."""
        if space == GROUP:
            self._num_of_groups += 1
            name = name or f"{self._label}{self._num_of_groups}"
        value = Value(operation, space, tuple(shape), tuple(inputs), name, number)
        self.values.append(value)
        return value.view

    def number(self, number: float) -> View:
        """A number of the code."""
        number = float(number)
        if number not in self._numbers or number == 0:  # 0.0 equals -0.0
            self._numbers[number] = Value(CONSTANT, WHOLE, (), number=number)
        return self._numbers[number].view

    def apply(self, operation: Operation, *operands: Operand) -> View:
        """An elementwise operation, its operands stretched to a common shape."""
        first = operands[0]
        if isinstance(first, View) and operands[1:] == (operation.neutral,):
            return first
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
        """A dense copy."""
        return self.add(COPY, view.space, view.shape, [view])

    def contiguous(self, view: View) -> View:
        """A view with dense rows; a copy if they are not."""
        return view if view.is_contiguous else self.copy(view)

    def reshape(self, view: View, shape: Sequence[int]) -> View:
        """A view in another shape; a copy if the numbers are not dense."""
        if view.shape == tuple(shape):
            return view
        return self.contiguous(view).arranged(shape, contiguous(shape))

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
            shape, steps = (self.arity, *view.shape), (view.row, *view.steps)
            return View(view.value, NODES, shape, steps, view.offset, self.arity * view.row)
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
        shapes.append(own)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Untraceable("it joins tensors of different shapes") from None


def reachable(start: Iterable[T], inputs: Callable[[T], Iterable[T]]) -> set[T]:
    """Some nodes of a graph, and all that they are computed from."""
    stack, found = list(start), set[T]()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += inputs(node)
    return found


def needed_values(values: Sequence[Value], wanted: Iterable[Value]) -> list[Value]:
    """The values, in order, that the results depend on."""
    needed = reachable(wanted, lambda value: [view.value for view in value.inputs])
    return [value for value in values if value in needed]
