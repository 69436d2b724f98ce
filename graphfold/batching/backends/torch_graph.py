"""GroupGraph: the function of a group as a graph of torch's calls, and views of values as tensors.

A value is a tensor with a row for each node or edge of the group, or one row for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

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

#: A tensor in the function: an `fx.Proxy`, which notes all that is called on it.
Symbolic: TypeAlias = Any


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
        self._tracer = fx.proxy.GraphAppendingTracer(self._graph)
        self._sizes = {
            NODES: self._placeholder("num_nodes"),
            EDGES: self._placeholder("num_edges"),
        }
        self._arguments: dict[Argument, Symbolic] = {}
        self.tensors: dict[Value, Symbolic] = {}
        self.truths: set[Value] = set()
        self._views: dict[tuple[Any, ...], Symbolic] = {}
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

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Symbolic:
        """Writes a call of a function, which does not run: it may be one in Python."""
        return self._tracer.create_proxy("call_function", function, args, options)

    def _placeholder(self, name: str) -> Symbolic:
        return fx.Proxy(self._graph.placeholder(name), self._tracer)

    def argument(
        self, kind: str, key: Key = ("", ""), space: int = ONE, number: float = 0.0
    ) -> Symbolic:
        """An argument of the function, see `Argument`."""
        argument = Argument(kind, key, space, number)
        if argument not in self._arguments:
            last = next(reversed(self._arguments.values()), self._sizes[EDGES])
            with self._graph.inserting_after(last.node):
                self._arguments[argument] = self._placeholder(f"a{len(self._arguments)}")
        return self._arguments[argument]

    def count(self, space: str) -> Symbolic | int:
        """The number of rows of a space."""
        return 1 if space == GROUP else self._sizes[space]

    def tensor(self, value: Value) -> Symbolic:
        """The tensor of a value, [number of rows, *shape]; of a constant, [*shape]."""
        if value not in self.tensors:
            is_constant = value.operation is CONSTANT
            self.tensors[value] = self._constant(value) if is_constant else self.piece(value)
        return self.tensors[value]

    def _constant(self, value: Value) -> Symbolic:
        if value.literal is None:
            return self.argument("whole", ("constant", value.name))
        return self.argument("number", number=value.literal)

    def piece(self, value: Value) -> Symbolic:
        """The rows of the group where a value lies in the memory of the pass."""
        if value not in self._places:
            raise Unwritable(f"it reads '{value.operation}', which is not there")
        place = self._places[value]
        piece = self.argument("piece", place.key, place.space)
        by_edge = place.space in (ALL_EDGES, TYPE_EDGES)
        is_row = len(value.shape) == 1 and by_edge == (value.space == EDGES)
        if is_row or place.key[0] in ("x", "edge"):
            return piece
        return piece.view(self.count(value.space), *value.shape)

    def view(self, view: View, stretch: Sequence[int] = (), real: bool = True) -> Symbolic:
        """The tensor of a view; dimensions that it stretches have the size 1, others than some.

        Args:
            view: the view.
            stretch: the dimensions that keep their size.
            real: whether it is a tensor of numbers; otherwise, of truth values.
        """
        value, shape = view.value, own_sizes(view, stretch)
        key = (value, view.space, shape, view.steps, view.offset, view.row)
        node = self._once(key, lambda: self._arranged(view, shape))
        if real == (value not in self.truths):
            return node
        return self._once((*key, real), lambda: node.to(self._dtype) if real else node.ne(0))

    def _once(self, key: tuple[Any, ...], write: Callable[[], Symbolic]) -> Symbolic:
        """The tensor of a key, written when it is first needed."""
        if key not in self._views:
            self._views[key] = write()
        return self._views[key]

    def _arranged(self, view: View, shape: tuple[int, ...]) -> Symbolic:
        value, node = view.value, self.tensor(view.value)
        if value.operation is CONSTANT:
            return _arranged_whole(view, node, shape)
        if view.space == value.space and shape == value.shape and is_plain(view, shape):
            return node
        count, row, size = self.count(view.space), view.row or value.size, math.prod(shape)
        flat = self._flat(value, view, row)
        if not size or not lies_flat(shape, view.steps):
            rest = narrowed(flat, view.offset, row)
            return rest.as_strided((count, *shape), (row, *view.steps))
        if (view.offset, size) != (0, row):
            flat = self._sliced(view, flat, (view.offset, size), row)
        return flat if len(shape) == 1 else flat.view(count, *shape)

    def _flat(self, value: Value, view: View, row: int) -> Symbolic:
        """[number of rows, row] the numbers of each row side by side."""
        node = self.tensor(value)
        if view.space == value.space and len(value.shape) == 1 and row == value.size:
            return node
        key = ("flat", value, view.space, row)
        return self._once(key, lambda: node.view(self.count(view.space), row))

    def _sliced(self, view: View, flat: Symbolic, columns: tuple[int, int], row: int) -> Symbolic:
        """Some columns; if several are read, all are cut at once, in less time."""
        value = view.value
        cuts = self._cuts.get(value, [])
        if row != value.size or columns not in cuts:
            return flat.narrow(1, *columns)
        ends = sorted({0, row, *(end for start, size in cuts for end in (start, start + size))})
        sizes = [stop - start for start, stop in pairwise(ends)]
        key = ("cut", value, view.space)
        parts = self._once(key, lambda: flat.split_with_sizes(sizes, 1))
        return parts[ends.index(columns[0])]

    def stretched(self, node: Symbolic, view: View) -> Symbolic:
        """A tensor with its stretched dimensions expanded."""
        if view.value.operation is not CONSTANT and not any(view.stretched):
            return node
        return self.view(view).expand(self.count(view.space), *view.shape)

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
        return is_same and view.is_all and not any(view.stretched)

    def compute(
        self,
        value: Value,
        function: Callable[..., Any],
        *args: Any,
        reuse: Sequence[View] = (),
        is_ordered: bool = True,
        **options: Any,
    ) -> None:
        """Writes the call that computes a value, into its place or into memory of its own.

        Args:
            value: the value.
            function: computes it of `args` and `options`, and writes it into an `out`; a partial
                function writes such calls.
            *args: of the function.
            reuse: operands whose memory the result may take.
            is_ordered: whether the function gives contiguous memory.
            **options: of the function.
        """
        out = self.target(value)
        if out is None and is_ordered:
            out = self.reusable(value, reuse)
        write = function if isinstance(function, partial) else partial(self.call, function)
        if out is not None:
            write(*args, **options, out=out)
        else:
            out = write(*args, **options)
            out = out if is_ordered else out.contiguous()
        self.tensors[value] = out
        if value not in self._places:
            self.scratch.add(value)

    def store(self, value: Value, node: Symbolic, is_scratch: bool = False) -> None:
        """Notes the tensor of a value, copied to its place if it has one."""
        out = self.target(value)
        if out is not None:
            out.copy_(node)
        elif is_scratch:
            self.scratch.add(value)
        self.tensors[value] = node if out is None else out

    def new(self, method: str, value: Value, *args: Any) -> Symbolic:
        """Memory of its own for a value, by `new_full` or another such method of a tensor."""
        shape = (self.count(value.space), *value.shape)
        self.tensors[value] = node = getattr(self.argument("like"), method)(shape, *args)
        self.scratch.add(value)
        return node

    def target(self, value: Value) -> Symbolic | None:
        """The memory of the pass where a value belongs, or None."""
        return self.piece(value) if value in self._places else None

    def reusable(self, value: Value, views: Sequence[View]) -> Symbolic | None:
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


def _arranged_whole(view: View, node: Symbolic, shape: tuple[int, ...]) -> Symbolic:
    """A constant; torch stretches it over rows itself."""
    own, size = view.value.shape, view.value.size
    if shape == own or (not own and all(n == 1 for n in shape)):
        return node
    if view.offset == 0 and lies_flat(shape, view.steps) and math.prod(shape) == size:
        return node.view(shape)
    return narrowed(node.view(1, -1), view.offset, size).as_strided(shape, view.steps)


def narrowed(flat: Symbolic, offset: int, row: int) -> Symbolic:
    """Rows of numbers from an offset on."""
    return flat.narrow(1, offset, row - offset) if offset else flat


def _find_cuts(values: Sequence[Value]) -> Mapping[Value, list[tuple[int, int]]]:
    """Value -> (offset, size) of each range of columns that is read, if several lie apart."""
    found: dict[Value, set[tuple[int, int]]] = {}
    for value in values:
        for view in value.inputs:
            own = columns_of(view)
            if own is not None and own[1] < view.row and view.row == view.value.size:
                found.setdefault(view.value, set()).add(own)
    cuts = {value: sorted(columns) for value, columns in found.items() if len(columns) > 1}
    return {
        value: columns
        for value, columns in cuts.items()
        if all(a + size <= b for (a, size), (b, _) in pairwise(columns))
    }


def own_sizes(view: View, stretch: Collection[int] = ()) -> tuple[int, ...]:
    """The sizes of a view, with 1 for stretched dimensions but those in `stretch`."""
    dims = enumerate(zip(view.shape, view.stretched, strict=True))
    return tuple(
        1 if is_stretched and dim not in stretch else size for dim, (size, is_stretched) in dims
    )


def size_in(view: View, dim: int, num_dims: int) -> int:
    """The size that torch sees of a dimension, counted in the shape of a result."""
    own = dim - (num_dims - len(view.shape))
    return 1 if own < 0 or view.stretched[own] else view.shape[own]


def is_plain(view: View, shape: Sequence[int]) -> bool:
    """True if a row of a view is the whole row of its value, in order."""
    return view.offset == 0 and lies_flat(shape, view.steps) and view.row in (0, view.value.size)


def columns_of(view: View) -> tuple[int, int] | None:
    """(first column, how many) of a row, if the numbers lie side by side there."""
    return (view.offset, math.prod(view.shape)) if view.is_contiguous else None


def is_in_order(view: View) -> bool:
    """True if later dimensions have smaller steps, so that torch makes results contiguous."""
    steps = [step for size, step in zip(view.shape, view.steps, strict=True) if size > 1 and step]
    return all(a >= b for a, b in pairwise(steps))
