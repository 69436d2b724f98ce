"""Programs: the values of a cell as instructions for native code, with a place for each.

A value lies in scratch memory of the block, in a place that later values may take again, unless it
is one of the results, which lie in buffers of the pass. The layout of instructions and the numbers
of operations are those of native/program.h and native/elementwise.h.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.batching.engine.compiled.operations import (
    ACCUMULATE,
    ACCUMULATE_MAX,
    ELEMENTWISE,
    END_OF_STAGE,
    LOOK_UP_ADD,
    MULTIPLY,
    ON_ROWS,
    PULL_NEXT,
    PULL_WEIGHTED,
    SUM_OF_GROUP,
)
from graphfold.batching.engine.compiled.stages import known_in, stages_of
from graphfold.batching.engine.compiled.values import (
    CONSTANT,
    EDGES,
    FETCHES,
    GROUP,
    MEAN_OF_GROUP,
    NODES,
    WHOLE,
    Untraceable,
    Value,
    View,
    contiguous,
)

#: What lies in a buffer of the pass: a kind and a name.
Key: TypeAlias = tuple[str, str]

#: What lies in scratch memory.
SCRATCH: Key = "scratch", ""

#: Where the rows of a buffer are counted from, as in native/program.h.
SCRATCH_NODES, SCRATCH_EDGES, ROWS, TYPE_ROWS, ALL_EDGES, TYPE_EDGES, ONE, PER_THREAD = range(8)

#: How often an instruction is carried out, as in native/program.h.
ROWS_OF = {NODES: 0, EDGES: 1, GROUP: 2}

#: As in native/pass.c.
MAX_BUFFERS = 256
MAX_DIMS = 3


class Place(NamedTuple):
    """A buffer of the pass.

    Args:
        key: what lies there.
        space: where its rows are counted from.
        size: how many numbers a row has; of a value of nodes that lies there by edges, those of an
            edge.
    """

    key: Key
    space: int
    size: int


class Weight(NamedTuple):
    """A packed weight: the numbers of two constants, and whether it is transposed."""

    weight: int
    bias: int | None
    is_transposed: bool

    @property
    def key(self) -> Key:
        return "packed", f"{self.weight}:{self.bias}:{self.is_transposed}"


@dataclass(frozen=True)
class Program:
    """Instructions for one direction of a cell.

    Args:
        instructions: [num_instructions, 30] int64.
        buffers: [num_buffers, 3] int64: space, numbers per row, and of scratch memory the numbers
            per row before it.
        keys: what lies in each buffer (of scratch memory, nothing has to), then in each array of
            integers that it reads.
        numbers: the numbers of the code.
        scratch: how many numbers of scratch memory it takes per node and per edge.
        weights: the packed weights that it reads.
    """

    instructions: Tensor
    buffers: Tensor
    keys: tuple[Key, ...]
    numbers: Tensor
    scratch: tuple[int, int]
    weights: tuple[Weight, ...]

    @cached_property
    def sums(self) -> Mapping[Key, int]:
        """The sums that each thread has of its own -> the number of their numbers."""
        sizes = zip(self.keys, self.buffers[:, 1].tolist(), strict=False)
        return {key: size for key, size in sizes if key[0] == "sums"}

    @cached_property
    def head(self) -> list[int]:
        """Its beginning in native memory; the addresses of `keys` follow."""
        return [
            self.buffers.data_ptr(),
            self.instructions.data_ptr(),
            len(self.buffers),
            len(self.instructions),
            *self.scratch,
        ]


def write_program(
    dtype: torch.dtype,
    values: Sequence[Value],
    places: Mapping[Value, Place],
    results: Sequence[tuple[View, Place]] = (),
    accumulated: Mapping[Value, Sequence[tuple[View, View]]] | None = None,
    tables: Mapping[str, View] | None = None,
) -> Program:
    """The program that computes some values.

    Args:
        dtype: of all numbers.
        values: what to compute, in order.
        places: values that lie in buffers of the pass: computed here, or given.
        results: views that are copied to buffers of the pass.
        accumulated: constant -> what its views are asked, added up over all rows.
        tables: table -> what is asked of its rows, by edge.

    Raises:
        Untraceable: if they take more buffers or dimensions than there are.
    """
    writer = _Writer(places)
    asked = accumulated or {}
    looked_up = tables or {}
    stages = stages_of(values)
    values = sorted(values, key=stages.__getitem__)
    writer.allocate(values, [*(view for view, _ in results), *looked_up.values()], asked)
    for stage in range(max((known_in(value, stages) for value in values), default=0) + 1):
        own = [value for value in values if stages[value] == stage]
        own.sort(key=lambda v: v.space != GROUP or v.operation == MEAN_OF_GROUP)
        for value in own:
            writer.compute(value)
        for view, place in results:
            if known_in(view.value, stages) == stage:
                writer.store(view, place)
        for constant, pairs in asked.items():
            writer.accumulate(constant, [p for p in pairs if known_in(p[1].value, stages) == stage])
        for name, view in looked_up.items():
            if known_in(view.value, stages) == stage:
                writer.add_to_table(name, view)
        writer.end_stage([value for value in own if value.operation == MEAN_OF_GROUP])
    return writer.finish(dtype)


class _Operand(NamedTuple):
    buffer: int
    offset: int
    row: int
    steps: tuple[int, ...]


class _Writer:
    def __init__(self, places: Mapping[Value, Place]) -> None:
        self._places = places
        self._buffers: dict[tuple[int, int, int, Key | None], int] = {}
        self._scratch: dict[Value, int] = {}
        self._indices: dict[Key, int] = {}
        self._numbers: list[float] = []
        self._number_of: dict[Value, int] = {}
        self._weights: dict[Weight, None] = {}
        self._instructions: list[list[int]] = []
        self._sizes = {NODES: 0, EDGES: 0}

    def allocate(
        self,
        values: Sequence[Value],
        results: Sequence[View],
        asked: Mapping[Value, Sequence[tuple[View, View]]],
    ) -> None:
        """Finds places in scratch memory; the first gap that is large enough."""
        last = {view.value: at for at, value in enumerate(values) for view in value.inputs}
        at_end = [*results, *(grad for pairs in asked.values() for _, grad in pairs)]
        last |= dict.fromkeys((view.value for view in at_end), len(values))
        live: dict[str, list[tuple[int, int, Value]]] = {NODES: [], EDGES: []}
        for at, value in enumerate(values):
            if value in self._places:
                continue
            own = live[value.space]
            own[:] = [piece for piece in own if last.get(piece[2], -1) >= at]
            start = 0
            for begin, end, _ in sorted(own, key=lambda piece: piece[:2]):
                if begin - start >= value.size:
                    break
                start = max(start, end)
            own.append((start, start + value.size, value))
            self._scratch[value] = start
            self._sizes[value.space] = max(self._sizes[value.space], start + value.size)

    def compute(self, value: Value) -> None:
        """Writes the instructions for a value."""
        name, _, dim = value.operation.partition(":")
        out = value.view
        if name in ELEMENTWISE:
            self._elementwise(ELEMENTWISE[name], out, value.inputs)
        elif name == "cat":
            start = 0
            for view in value.inputs:
                offset = start * out.steps[int(dim)]
                self._elementwise(0, out.arranged(view.shape, out.steps, offset), [view])
                start += view.shape[int(dim)]
        elif name in ("reduce_sum", "reduce_max"):
            (view,) = value.inputs
            is_sum = name == "reduce_sum"
            self._fill(out, 0.0 if is_sum else -math.inf)
            operation = ACCUMULATE if is_sum else ACCUMULATE_MAX
            self._elementwise(operation, out.expanded(view.shape), [view])
        elif name == "assemble":
            self._assemble(value)
        elif name in ("multiply", "multiply_transposed"):
            self._multiply(value, name == "multiply_transposed")
        elif name == MEAN_OF_GROUP:
            rows, sums = self._operand(value.inputs[0]), self._sums(value)
            operands = [[x.buffer, x.offset, x.row, 0, 0, 1] for x in (sums, rows)]
            self._emit(SUM_OF_GROUP, NODES, (1, 1, value.size), 0, operands)
        else:
            self._rows(value, name)

    def store(self, view: View, place: Place) -> None:
        """Copies a view to a buffer of the pass."""
        buffer = self._buffer(place.space, place.size, 0, place.key)
        out = _Operand(buffer, 0, place.size, contiguous(view.shape))
        self._emit_elementwise(0, view.space, view.shape, out, [self._operand(view)])

    def accumulate(self, constant: Value, pairs: Sequence[tuple[View, View]]) -> None:
        """Adds to what is asked of a constant."""
        buffer = self._buffer(PER_THREAD, constant.size, 0, ("accumulated", constant.name))
        for view, grad in pairs:
            view = view.expanded(grad.shape)
            out = _Operand(buffer, view.offset, 0, view.steps)
            self._emit_elementwise(ACCUMULATE, grad.space, grad.shape, out, [self._operand(grad)])

    def add_to_table(self, name: str, view: View) -> None:
        """Adds to what is asked of the rows of a table."""
        given = self._operand(view)
        table = self._buffer(ONE, 0, 0, ("table_grad", name))
        sizes = (self._index(("table_size", name)), 1, math.prod(view.shape))
        operands = [[table, 0, 0, 0, 0, 1], [given.buffer, given.offset, given.row, 0, 0, 1]]
        self._emit(LOOK_UP_ADD, EDGES, sizes, self._index(("kind", "")), operands)

    def end_stage(self, means: Sequence[Value]) -> None:
        """Lets all blocks end before the next stage, and turns sums over them into means."""
        for value in means:
            out, sums = self._operand(value.view), self._sums(value)
            operands = [[x.buffer, x.offset, 0, 0, 0, 1] for x in (out, sums)]
            self._emit(END_OF_STAGE, GROUP, (1, 1, value.size), 0, operands)

    def finish(self, dtype: torch.dtype) -> Program:
        """The program."""
        if len(self._buffers) > MAX_BUFFERS:
            raise Untraceable(f"it needs more than {MAX_BUFFERS} buffers")
        columns = [(space, size, start) for space, size, start, _ in self._buffers]
        keys = [SCRATCH if key is None else key for *_, key in self._buffers]
        return Program(
            torch.tensor(self._instructions, dtype=torch.int64).view(-1, 30),
            torch.tensor(columns, dtype=torch.int64).view(-1, 3),
            (*keys, *self._indices),
            torch.tensor(self._numbers, dtype=dtype),
            (self._sizes[NODES], self._sizes[EDGES]),
            tuple(self._weights),
        )

    def _buffer(self, space: int, size: int, start: int, key: Key | None) -> int:
        return self._buffers.setdefault((space, size, start, key), len(self._buffers))

    def _sums(self, mean: Value) -> _Operand:
        """The place where each thread adds up what a mean is taken of."""
        buffer = self._buffer(PER_THREAD, mean.size, 0, ("sums", mean.name))
        return _Operand(buffer, 0, 0, contiguous(mean.shape))

    def _operand(self, view: View) -> _Operand:
        value, offset = view.value, view.offset
        if value in self._places:
            place = self._places[value]
            buffer = self._buffer(place.space, place.size, 0, place.key)
            if place.space == ONE:  # one row for all
                return _Operand(buffer, offset, 0, view.steps)
        elif value.operation == CONSTANT and value.name:
            buffer = self._buffer(ONE, 0, 0, ("constant", value.name))
        elif value.operation == CONSTANT:
            buffer = self._buffer(ONE, 0, 0, ("numbers", ""))
            if value not in self._number_of:
                self._number_of[value] = len(self._numbers)
                self._numbers.append(float(value.number))
            offset += self._number_of[value]
        else:
            space = SCRATCH_NODES if value.space == NODES else SCRATCH_EDGES
            buffer = self._buffer(space, 0, self._scratch[value], None)
        return _Operand(buffer, offset, view.row, view.steps)

    def _elementwise(self, operation: int, out: View, inputs: Sequence[View]) -> None:
        """An elementwise operation on views of one shape, that of `out`."""
        operands = [self._operand(view.expanded(out.shape)) for view in inputs]
        self._emit_elementwise(operation, out.space, out.shape, self._operand(out), operands)

    def _fill(self, out: View, number: float) -> None:
        value = Value(CONSTANT, WHOLE, (), number=number)
        self._elementwise(0, out, [value.view])

    def _emit_elementwise(
        self,
        operation: int,
        space: str,
        shape: Sequence[int],
        out: _Operand,
        inputs: Sequence[_Operand],
    ) -> None:
        sizes, steps = _collapsed(shape, [out, *inputs])
        placed = [
            [x.buffer, x.offset, x.row, *own] for x, own in zip([out, *inputs], steps, strict=True)
        ]
        self._emit(operation, space, sizes, 0, placed)

    def _emit(
        self,
        operation: int,
        space: str,
        sizes: Sequence[int],
        index: int,
        operands: list[list[int]],
    ) -> None:
        missing = [[0] * 6] * (4 - len(operands))
        flat = [number for operand in [*operands, *missing] for number in operand]
        self._instructions.append([operation, ROWS_OF[space], *sizes, index, *flat])

    def _assemble(self, value: Value) -> None:
        """Adds up what the views of a value are asked; what is asked first is copied."""
        regions: tuple[View, ...] = value.number
        written = _Written(value)
        kinds = [written.add(region) for region in regions]
        if None in kinds or not written.is_everything:
            self._fill(value.view, 0.0)
            kinds = [ACCUMULATE] * len(kinds)
        pairs = list(zip(regions, value.inputs, kinds, strict=True))
        if len(pairs) > 1 and all(_is_whole(region, grad) for region, grad, _ in pairs[:2]):
            self._elementwise(ELEMENTWISE["add"], value.view, [grad for _, grad, _ in pairs[:2]])
            pairs = pairs[2:]
        for region, grad, kind in pairs:
            out = self._operand(View(value, *_arrangement(region)))
            self._emit_elementwise(kind or 0, region.space, grad.shape, out, [self._operand(grad)])

    def _multiply(self, value: Value, is_transposed: bool) -> None:
        x, weight, *bias = value.inputs
        number = int(bias[0].value.name) if bias else None
        packed = Weight(int(weight.value.name), number, is_transposed)
        self._weights[packed] = None
        buffer = self._buffer(ONE, 0, 0, packed.key)
        rows, out = self._operand(x), self._operand(value.view)
        sizes = (x.shape[-1], 1, value.shape[-1])
        operands = [
            [out.buffer, out.offset, out.row, 0, 0, 1],
            [rows.buffer, rows.offset, rows.row, 0, 0, 1],
            [buffer, 0, 0, 0, 0, 1],
        ]
        self._emit(MULTIPLY, value.space, sizes, 0, operands)

    def _rows(self, value: Value, name: str) -> None:
        """Writes an operation on whole rows."""
        out = self._operand(value.view)
        operands = [[out.buffer, out.offset, out.row, 0, 0, 1]]
        sizes, index = (1, 1, value.size), 0
        if name in FETCHES:
            row = {"gather_previous": "previous_row", "look_up": "kind"}.get(name, "child_row")
            index = self._index((row, ""))
            kind = "table" if name == "look_up" else "read"
            operands.append(self._whole(kind, value.name, value.size))
        elif name == "integer":
            index = self._index((value.name, ""))
        elif name == "pull":
            index = self._index(("outside_row", value.name))
            kinds = "outside", "edge_grad", "node_grad"
            operands += [self._whole(kind, value.name, value.size) for kind in kinds]
        for view in value.inputs:
            given = self._operand(view)
            operands.append([given.buffer, given.offset, given.row, 0, 0, 1])
        operation = ON_ROWS.get(name)
        if operation is None:
            raise Untraceable(f"there is no native operation '{name}'")
        self._emit(operation, value.space, sizes, index, operands)
        if name == "pull":
            following = self._whole("previous_grad", value.name, value.size)
            self._emit(PULL_NEXT, value.space, sizes, 0, [operands[0], following])
            asked = self._whole("weighted_grad", value.name, value.size)
            weight = self._whole("edge_weight", value.name, 1)
            self._emit(PULL_WEIGHTED, value.space, sizes, 0, [operands[0], asked, weight])

    def _whole(self, kind: str, name: str, size: int) -> list[int]:
        """A buffer of rows of so many numbers that is read anywhere."""
        return [self._buffer(ONE, 0, 0, (kind, name)), 0, size, 0, 0, 1]

    def _index(self, key: Key) -> int:
        return self._indices.setdefault(key, len(self._indices))


class _Written:
    """The numbers of a value that have been written, so that the first of a place is copied."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self._arity = 1
        self._seen: npt.NDArray[np.bool_] | None = None

    @property
    def is_everything(self) -> bool:
        return self._seen is not None and bool(self._seen.all())

    def add(self, region: View) -> int | None:
        """0 (copy) if a region is new, ACCUMULATE if all of it is there; None for neither."""
        value = self._value
        if region.space != value.space:  # a row holds those of all edges of a node
            self._widen(region.row // value.size)
        places: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64) + region.offset
        for size, step in zip(region.shape, region.steps, strict=True):
            places = np.add.outer(places, np.arange(size) * step)
        places = places.reshape(-1)
        if region.space == value.space:
            places = np.add.outer(np.arange(self._arity) * value.size, places).reshape(-1)
        if self._seen is None:
            self._seen = np.zeros(value.size * self._arity, dtype=np.bool_)
        is_new = not self._seen[places].any() and len(np.unique(places)) == len(places)
        is_there = bool(self._seen[places].all())
        self._seen[places] = True
        return 0 if is_new else ACCUMULATE if is_there else None

    def _widen(self, arity: int) -> None:
        if self._arity == 1 and arity > 1:
            self._arity = arity
            if self._seen is not None:
                self._seen = np.tile(self._seen, arity)


def _is_whole(region: View, grad: View) -> bool:
    """True if what is asked of a region is asked of all of its value, number by number."""
    value = region.value
    is_plain = region.is_all and (region.space, region.shape) == (value.space, value.shape)
    return is_plain and (grad.space, grad.shape) == (value.space, value.shape)


def _arrangement(view: View) -> tuple[str, tuple[int, ...], tuple[int, ...], int, int]:
    return view.space, view.shape, view.steps, view.offset, view.row


def _collapsed(
    shape: Sequence[int], operands: Sequence[_Operand]
) -> tuple[list[int], list[list[int]]]:
    """Three sizes and the steps of every operand, with dimensions joined where they lie so.

    The last dimension is one of steps 1 or 0; the run over it is the inner loop.

    Raises:
        Untraceable: if there are more dimensions.
    """
    dims: list[tuple[int, list[int]]] = []
    for position, size in enumerate(shape):
        steps = [operand.steps[position] for operand in operands]
        if size == 1:
            continue
        if dims and all(old == new * size for old, new in zip(dims[-1][1], steps, strict=True)):
            dims[-1] = dims[-1][0] * size, steps
        else:
            dims.append((size, steps))
    if not dims or any(step not in (0, 1) for step in dims[-1][1]) or dims[-1][1][0] not in (0, 1):
        dims.append((1, [int(operand.row != 0) for operand in operands]))
    missing = MAX_DIMS - len(dims)
    if missing < 0:
        raise Untraceable(f"it has tensors of more than {MAX_DIMS} dimensions after the rows")
    dims = [(1, [0] * len(operands))] * missing + dims
    sizes = [size for size, _ in dims]
    return sizes, [[steps[number] for _, steps in dims] for number in range(len(operands))]


def needed_values(
    values: Sequence[Value], wanted: Iterator[Value] | Sequence[Value]
) -> list[Value]:
    """Those of some values, in order, which others are computed from."""
    needed = set()
    stack = list(wanted)
    while stack:
        value = stack.pop()
        if value not in needed:
            needed.add(value)
            stack += [view.value for view in value.inputs]
    return [value for value in values if value in needed]
