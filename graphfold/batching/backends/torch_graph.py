"""GroupGraph: the function of a group as a graph of torch's calls, and views of values as tensors.

A value is a tensor with a row for each node or edge of the group, or one row for all.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from graphfold.batching.backends.torch_program import Argument, TorchProgram
from graphfold.batching.compiler.operations import DETACH
from graphfold.batching.compiler.program import ALL_EDGES, ONE, TYPE_EDGES, Key, Place
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPY,
    EDGES,
    GROUP,
    NODES,
    Unwritable,
    Value,
    View,
    lies_flat,
)


class GroupGraph:
    """The calls that compute a group.

    Args:
        dtype: of all numbers.
        values: what is computed, in order.
        places: the values that lie in the memory of the pass.
        reuses_memory: whether results may be written over operands that nothing reads any more.

    Attributes:
        tensors: value -> its tensor, once it is there.
        truths: the values that are tensors of truth values.
        scratch: the values whose memory is nobody else's, so that it may be written to again.
        at: the place among `values` of the one that is written.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        values: Sequence[Value],
        places: Mapping[Value, Place],
        reuses_memory: bool = True,
    ) -> None:
        self._dtype, self._places, self._reuses_memory = dtype, places, reuses_memory
        self._graph = fx.Graph()
        self._sizes = {
            NODES: self._graph.placeholder("num_nodes"),
            EDGES: self._graph.placeholder("num_edges"),
        }
        self._arguments: dict[Argument, fx.Node] = {}
        self.tensors: dict[Value, fx.Node] = {}
        self.truths: set[Value] = set()
        self._views: dict[tuple[Any, ...], fx.Node] = {}
        self._cuts = _find_cuts(values)
        self._memory_of = self._find_aliases(values)
        self._last = {
            self.memory(view): at for at, value in enumerate(values) for view in value.inputs
        }
        self.scratch: set[Value] = set()
        self.at = 0

    def program(self) -> TorchProgram:
        """The function of all calls so far."""
        self._graph.output(None)
        module = fx.GraphModule(torch.nn.Module(), self._graph)
        keys = dict.fromkeys(argument.key for argument in self._arguments)
        return TorchProgram(module.forward, tuple(self._arguments), tuple(keys))

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> fx.Node:
        """Writes a call of a function."""
        return self._graph.call_function(function, args, options)

    def method(self, name: str, *args: Any, **options: Any) -> fx.Node:
        """Writes a call of a tensor's method."""
        return self._graph.call_method(name, args, options)

    def argument(
        self, kind: str, key: Key = ("", ""), space: int = ONE, number: float = 0.0
    ) -> fx.Node:
        """An argument of the function, see `Argument`."""
        argument = Argument(kind, key, space, number)
        if argument not in self._arguments:
            with self._graph.inserting_after(self._last_placeholder()):
                self._arguments[argument] = self._graph.placeholder(f"a{len(self._arguments)}")
        return self._arguments[argument]

    def _last_placeholder(self) -> fx.Node:
        return next(reversed(self._arguments.values()), self._sizes[EDGES])

    def count(self, space: str) -> fx.Node | int:
        """The number of rows of a space."""
        return 1 if space == GROUP else self._sizes[space]

    def tensor(self, value: Value) -> fx.Node:
        """The tensor of a value, [number of rows, *shape]; of a constant, [*shape]."""
        if value not in self.tensors:
            if value.operation is CONSTANT:
                self.tensors[value] = self._constant(value)
            else:
                self.tensors[value] = self.piece(value)
        return self.tensors[value]

    def _constant(self, value: Value) -> fx.Node:
        if value.name:
            return self.argument("whole", ("constant", value.name))
        return self.argument("number", number=float(value.number))

    def piece(self, value: Value) -> fx.Node:
        """The rows of the group where a value lies in the memory of the pass."""
        if value not in self._places:
            raise Unwritable(f"it reads '{value.operation}', which is not there")
        place = self._places[value]
        piece = self.argument("piece", place.key, place.space)
        by_edge = place.space in (ALL_EDGES, TYPE_EDGES)
        is_row = len(value.shape) == 1 and by_edge == (value.space == EDGES)
        if is_row or place.key[0] in ("x", "edge"):
            return piece
        return self.method("view", piece, self.count(value.space), *value.shape)

    def view(self, view: View, stretch: Sequence[int] = (), real: bool = True) -> fx.Node:
        """The tensor of a view; dimensions that it stretches have the size 1, others than some.

        Args:
            view: the view.
            stretch: the dimensions that keep their size.
            real: whether it is a tensor of numbers; otherwise, of truth values.
        """
        shape = own_sizes(view, stretch)
        key = (view.value, view.space, shape, view.steps, view.offset, view.row)
        if key not in self._views:
            self._views[key] = self._arranged(view, shape)
        node, value = self._views[key], view.value
        if real and value in self.truths:
            return self._once((*key, "real"), "to", node, self._dtype)
        if not real and value not in self.truths:
            return self._once((*key, "bool"), "ne", node, 0)
        return node

    def _once(self, key: tuple[Any, ...], method: str, *args: Any) -> fx.Node:
        if key not in self._views:
            self._views[key] = self.method(method, *args)
        return self._views[key]

    def _arranged(self, view: View, shape: tuple[int, ...]) -> fx.Node:
        value, node = view.value, self.tensor(view.value)
        if value.operation is CONSTANT:
            return self._arranged_whole(view, node, shape)
        if view.space == value.space and shape == value.shape and is_plain(view, shape):
            return node
        count, row = self.count(view.space), view.row or value.size
        size = math.prod(shape)
        steps = [0 if n == 1 else step for n, step in zip(shape, view.steps, strict=True)]
        columns = (view.offset, size) if lies_flat(shape, steps) else None
        if columns is None or size == 0:
            rest = self.narrowed(self._flat(value, view, row), view.offset, row)
            return self.method("as_strided", rest, (count, *shape), (row, *view.steps))
        found = self._flat(value, view, row)
        if columns != (0, row):
            found = self._sliced(value, view, found, columns, row)
        return found if len(shape) == 1 else self.method("view", found, count, *shape)

    def _arranged_whole(self, view: View, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        """A constant; torch stretches it over rows itself."""
        own = view.value.shape
        if shape == own or (not own and not any(n != 1 for n in shape)):
            return node
        steps = [0 if n == 1 else step for n, step in zip(shape, view.steps, strict=True)]
        if view.offset == 0 and lies_flat(shape, steps) and math.prod(shape) == view.value.size:
            return self.method("view", node, shape)
        flat = self.narrowed(self.method("view", node, 1, -1), view.offset, view.value.size)
        return self.method("as_strided", flat, shape, view.steps)

    def _flat(self, value: Value, view: View, row: int) -> fx.Node:
        """[number of rows, row] the numbers of each row side by side."""
        if view.space == value.space and len(value.shape) == 1 and row == value.size:
            return self.tensor(value)
        key = ("flat", value, view.space, row)
        if key not in self._views:
            node = self.tensor(value)
            self._views[key] = self.method("view", node, self.count(view.space), row)
        return self._views[key]

    def narrowed(self, flat: fx.Node, offset: int, row: int) -> fx.Node:
        """Rows of numbers from an offset on."""
        return self.method("narrow", flat, 1, offset, row - offset) if offset else flat

    def _sliced(
        self, value: Value, view: View, flat: fx.Node, columns: tuple[int, int], row: int
    ) -> fx.Node:
        """Some columns; if several are read, all are cut at once, in less time."""
        cuts = self._cuts.get(value)
        if cuts is None or row != value.size or columns not in cuts:
            return self.method("narrow", flat, 1, *columns)
        key = ("cut", value, view.space)
        sizes, at, place = [], 0, 0
        for offset, size in cuts:
            if offset > at:
                sizes.append(offset - at)
            if (offset, size) == columns:
                place = len(sizes)
            sizes.append(size)
            at = offset + size
        if at < row:
            sizes.append(row - at)
        if key not in self._views:
            self._views[key] = self.method("split_with_sizes", flat, sizes, 1)
        return self.call(operator.getitem, self._views[key], place)

    def stretched(self, node: fx.Node, view: View) -> fx.Node:
        """A tensor with its stretched dimensions expanded."""
        if view.value.operation is not CONSTANT and not any(stretched_dims(view)):
            return node
        return self.method("expand", self.view(view), self.count(view.space), *view.shape)

    # Where results lie.

    def _find_aliases(self, values: Sequence[Value]) -> dict[Value, Value]:
        """Value -> the value whose memory it reuses."""
        found: dict[Value, Value] = {}
        for value in values:
            if self.is_alias(value):
                source = value.inputs[0].value
                found[value] = found.get(source, source)
        return found

    def memory(self, view: View) -> Value:
        """The value that owns the memory of a view."""
        return self._memory_of.get(view.value, view.value)

    def is_alias(self, value: Value) -> bool:
        """True for a copy that may be its operand itself."""
        if value.operation not in (COPY, DETACH) or value in self._places:
            return False
        (view,) = value.inputs
        is_same = view.space == value.space == view.value.space
        return is_same and view.is_all and not any(stretched_dims(view))

    def compute(
        self,
        value: Value,
        function: Callable[..., Any],
        *args: Any,
        reuse: Sequence[View] = (),
        is_ordered: bool = True,
        **options: Any,
    ) -> None:
        """Writes the call that computes a value, into its place or into memory of its own."""
        out = self.target(value)
        if out is None:
            out = self.reusable(value, reuse) if is_ordered else None
        if out is not None:
            self.call(function, *args, **options, out=out)
            self.tensors[value] = out
        else:
            node = self.call(function, *args, **options)
            self.tensors[value] = node if is_ordered else self.method("contiguous", node)
        if value not in self._places:
            self.scratch.add(value)

    def store(self, value: Value, node: fx.Node, is_scratch: bool = False) -> None:
        """Notes the tensor of a value, copied to its place if it has one."""
        out = self.target(value)
        if out is None:
            self.tensors[value] = node
            if is_scratch:
                self.scratch.add(value)
        else:
            self.method("copy_", out, node)
            self.tensors[value] = out

    def new(self, method: str, value: Value, *args: Any) -> fx.Node:
        """Memory of its own for a value, by `new_full` or another such method of a tensor."""
        shape = (self.count(value.space), *value.shape)
        node = self.method(method, self.argument("like"), shape, *args)
        self.tensors[value] = node
        self.scratch.add(value)
        return node

    def target(self, value: Value) -> fx.Node | None:
        """The memory of the pass where a value belongs, or None."""
        return self.piece(value) if value in self._places else None

    def reusable(self, value: Value, views: Sequence[View]) -> fx.Node | None:
        """The tensor of an operand of the same shape that nothing reads after this."""
        if not self._reuses_memory:
            return None
        counts = Counter(map(self.memory, views))
        for view in views:
            memory = self.memory(view)
            if (
                memory in self.scratch
                and memory not in self.truths
                and counts[memory] == 1
                and self._last.get(memory) == self.at
                and view.is_all
                and view.space == view.value.space == value.space
                and view.shape == view.value.shape == value.shape
            ):
                return self.tensors[view.value]
        return None


def _find_cuts(values: Sequence[Value]) -> Mapping[Value, list[tuple[int, int]]]:
    """Value -> (offset, size) of each range of columns that is read, if there are several."""
    found: dict[Value, set[tuple[int, int]]] = {}
    for value in values:
        for view in value.inputs:
            own = columns_of(view)
            if own is not None and own[1] < view.row and view.row == view.value.size:
                found.setdefault(view.value, set()).add(own)
    return {
        value: sorted(columns)
        for value, columns in found.items()
        if len(columns) > 1 and _apart(sorted(columns))
    }


def stretched_dims(view: View) -> list[bool]:
    """For each dimension, whether all of it is the same number."""
    return [step == 0 and size > 1 for size, step in zip(view.shape, view.steps, strict=True)]


def own_sizes(view: View, stretch: Collection[int] = ()) -> tuple[int, ...]:
    """The sizes of a view, with 1 for stretched dimensions but those in `but`."""
    dims = enumerate(zip(view.shape, stretched_dims(view), strict=True))
    return tuple(
        1 if is_stretched and dim not in stretch else size for dim, (size, is_stretched) in dims
    )


def size_in(view: View, dim: int, num_dims: int) -> int:
    """The size that torch sees of a dimension, counted in the shape of a result."""
    own = dim - (num_dims - len(view.shape))
    return 1 if own < 0 or stretched_dims(view)[own] else view.shape[own]


def is_plain(view: View, shape: Sequence[int]) -> bool:
    """True if a row of a view is the whole row of its value, in order."""
    return view.offset == 0 and lies_flat(shape, view.steps) and view.row in (0, view.value.size)


def columns_of(view: View) -> tuple[int, int] | None:
    """(first column, how many) of a row, if the numbers lie side by side there."""
    return (view.offset, math.prod(view.shape)) if view.is_contiguous else None


def _apart(columns: Sequence[tuple[int, int]]) -> bool:
    """True if no two of some sorted columns overlap."""
    return all(a + size <= b for (a, size), (b, _) in pairwise(columns))


def is_in_order(view: View) -> bool:
    """True if later dimensions have smaller steps, so that torch makes results contiguous."""
    steps = [step for size, step in zip(view.shape, view.steps, strict=True) if size > 1 and step]
    return all(a >= b for a, b in pairwise(steps))
