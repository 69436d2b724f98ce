"""Writing programs: the values of a cell as instructions, with a place for each.

A value lies in scratch memory of the block, in a place that later values may take again, unless it
is one of the results, which lie in buffers of the pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from graphfold.batching.compiler.program import (
    ONE,
    PER_THREAD,
    SCRATCH,
    SCRATCH_EDGES,
    SCRATCH_NODES,
    Key,
    Place,
    Program,
    Weight,
)
from graphfold.batching.compiler.stages import known_in, stages_of
from graphfold.batching.compiler.values import (
    CONSTANT,
    EDGES,
    FETCHES,
    GROUP,
    MEAN_OF_GROUP,
    NODES,
    SINKS,
    WHOLE,
    Untraceable,
    Value,
    View,
)
from graphfold.batching.native.library import operations

#: How often an instruction is carried out, as in native/program.h.
ROWS_OF = {NODES: 0, EDGES: 1, GROUP: 2}

#: As in native/pass.c and native/program.h.
MAX_BUFFERS = 256
MAX_DIMS = 3
MAX_INPUTS = 6

#: Operations on whole rows.
ON_ROWS = (*FETCHES, "sum_edges", "max_edges", "expand", "count_edges", "integer", "pull")
#: What native code calls an operation, if that is not its name.
_NATIVE = dict.fromkeys(("detach", "fill"), "copy")
_NATIVE |= dict.fromkeys(("gather_previous", "look_up"), "gather")


def write_program(
    dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
) -> Program:
    """The program that computes some values.

    Args:
        dtype: of all numbers.
        values: what to compute, in order.
        places: values that lie in buffers of the pass: computed here, or given.

    Raises:
        Untraceable: if they take more buffers or dimensions than there are.
    """
    writer, stages = _Writer(dtype, places), stages_of(values)
    values = sorted(values, key=stages.__getitem__)
    writer.allocate(values)
    for stage in range(max((known_in(value, stages) for value in values), default=0) + 1):
        own = [value for value in values if stages[value] == stage]
        own.sort(key=lambda v: v.space != GROUP or v.operation == MEAN_OF_GROUP)
        for value in own:
            writer.compute(value)
        writer.end_stage([value for value in own if value.operation == MEAN_OF_GROUP])
    return writer.finish()


class _Operand(NamedTuple):
    buffer: int
    offset: int
    row: int
    steps: tuple[int, ...]

    @property
    def of_row(self) -> list[int]:
        """As an operation on whole rows takes it."""
        return [self.buffer, self.offset, self.row, 0, 0, 1]


class _Writer:
    def __init__(self, dtype: torch.dtype, places: Mapping[Value, Place]) -> None:
        self._dtype, self._places, self._operations = dtype, places, operations(dtype)
        self._buffers: dict[tuple[int, int, int, Key | None], int] = {}
        self._scratch: dict[Value, int] = {}
        self._indices: dict[Key, int] = {}
        self._numbers: list[float] = []
        self._number_of: dict[Value, int] = {}
        self._weights: dict[Weight, None] = {}
        self._instructions: list[list[int]] = []
        self._sizes = {NODES: 0, EDGES: 0}

    def allocate(self, values: Sequence[Value]) -> None:
        """Finds places in scratch memory; the first gap that is large enough."""
        last = {view.value: at for at, value in enumerate(values) for view in value.inputs}
        live: dict[str, list[tuple[int, int, Value]]] = {NODES: [], EDGES: []}
        for at, value in enumerate(values):
            if value in self._places or value.operation in SINKS:
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
        if name in ON_ROWS:
            self._rows(value)
        elif name == "cat":
            start = 0
            for view in value.inputs:
                offset = start * out.steps[int(dim)]
                self._elementwise("copy", out.arranged(view.shape, out.steps, offset), [view])
                start += view.shape[int(dim)]
        elif name in ("reduce_sum", "reduce_max"):
            (view,) = value.inputs
            is_sum = name == "reduce_sum"
            self._fill(out, 0.0 if is_sum else -math.inf)
            operation = "accumulate" if is_sum else "accumulate_max"
            self._elementwise(operation, out.expanded(view.shape), [view])
        elif name == "assemble":
            self._assemble(value)
        elif name in ("multiply", "multiply_transposed"):
            self._multiply(value, name == "multiply_transposed")
        elif name == MEAN_OF_GROUP:
            operands = [self._sums(value), self._operand(value.inputs[0])]
            self._emit_rows("sum_of_group", NODES, value.size, operands)
        elif name == "accumulate":
            (grad,), place = value.inputs, value.number.expanded(value.shape)
            key = "accumulated", value.name
            buffer = self._buffer(PER_THREAD, place.value.size, 0, key)
            to = _Operand(buffer, place.offset, 0, place.steps)
            self._emit_elementwise(name, grad.space, grad.shape, [to, self._operand(grad)])
        elif name == "look_up_add":
            table = _Operand(self._buffer(ONE, 0, 0, ("table_grad", value.name)), 0, 0, ())
            sizes = self._index(("table_size", value.name)), 1, value.size
            rows = [table.of_row, self._operand(value.inputs[0]).of_row]
            self._emit(name, EDGES, sizes, rows, self._index(("kind", "")))
        else:
            self._elementwise(name, out, value.inputs)

    def end_stage(self, means: Sequence[Value]) -> None:
        """Lets all blocks end before the next stage, and turns sums over them into means."""
        for value in means:
            operands = [self._operand(value.view), self._sums(value)]
            self._emit_rows("end_of_stage", GROUP, value.size, operands)

    def finish(self) -> Program:
        """The program."""
        if len(self._buffers) > MAX_BUFFERS:
            raise Untraceable(f"it needs more than {MAX_BUFFERS} buffers")
        columns = [(space, size, start) for space, size, start, _ in self._buffers]
        keys = [SCRATCH if key is None else key for *_, key in self._buffers]
        width = 6 + 6 * (MAX_INPUTS + 1)
        return Program(
            torch.tensor(self._instructions, dtype=torch.int64).view(-1, width),
            torch.tensor(columns, dtype=torch.int64).view(-1, 3),
            (*keys, *self._indices),
            torch.tensor(self._numbers, dtype=self._dtype),
            (self._sizes[NODES], self._sizes[EDGES]),
            tuple(self._weights),
        )

    def _buffer(self, space: int, size: int, start: int, key: Key | None) -> int:
        return self._buffers.setdefault((space, size, start, key), len(self._buffers))

    def _index(self, key: Key) -> int:
        return self._indices.setdefault(key, len(self._indices))

    def _sums(self, mean: Value) -> _Operand:
        """The place where each thread adds up what a mean is taken of."""
        return _Operand(self._buffer(PER_THREAD, mean.size, 0, ("sums", mean.name)), 0, 0, ())

    def _whole(self, kind: str, name: str, size: int) -> _Operand:
        """A buffer of rows of so many numbers that is read anywhere."""
        return _Operand(self._buffer(ONE, 0, 0, (kind, name)), 0, size, ())

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

    def _elementwise(self, name: str, out: View, inputs: Sequence[View]) -> None:
        """An elementwise operation on views of one shape, that of `out`."""
        operands = [self._operand(out), *(self._operand(v.expanded(out.shape)) for v in inputs)]
        self._emit_elementwise(name, out.space, out.shape, operands)

    def _fill(self, out: View, number: float) -> None:
        self._elementwise("copy", out, [Value(CONSTANT, WHOLE, (), number=number).view])

    def _emit_elementwise(
        self, name: str, space: str, shape: Sequence[int], operands: Sequence[_Operand]
    ) -> None:
        sizes, steps = _collapsed(shape, operands)
        placed = [[*x[:3], *own] for x, own in zip(operands, steps, strict=True)]
        self._emit(name, space, sizes, placed)

    def _emit_rows(
        self, name: str, space: str, size: int, operands: Sequence[_Operand], index: int = 0
    ) -> None:
        self._emit(name, space, (1, 1, size), [operand.of_row for operand in operands], index)

    def _emit(
        self,
        name: str,
        space: str,
        sizes: Sequence[int],
        operands: Sequence[list[int]],
        index: int = 0,
    ) -> None:
        operation = self._operations.get(_NATIVE.get(name, name))
        if operation is None:
            raise Untraceable(f"there is no native operation '{name}'")
        missing = [[0] * 6] * (MAX_INPUTS + 1 - len(operands))
        flat = [number for operand in [*operands, *missing] for number in operand]
        self._instructions.append([operation, ROWS_OF[space], *sizes, index, *flat])

    def _assemble(self, value: Value) -> None:
        """Adds up what the views of a value are asked; what is asked first is copied."""
        regions: tuple[View, ...] = value.number
        names = _first_copied(value, regions)
        if names is None:
            self._fill(value.view, 0.0)
            names = ["accumulate"] * len(regions)
        todo = list(zip(regions, value.inputs, names, strict=True))
        if len(todo) > 1 and all(_is_whole(region, grad) for region, grad, _ in todo[:2]):
            self._elementwise("add", value.view, [grad for _, grad, _ in todo[:2]])
            todo = todo[2:]
        for region, grad, name in todo:
            own = (region.space, region.shape, region.steps, region.offset, region.row)
            operands = [self._operand(View(value, *own)), self._operand(grad)]
            self._emit_elementwise(name, region.space, grad.shape, operands)

    def _multiply(self, value: Value, is_transposed: bool) -> None:
        x, weight, *bias = value.inputs
        number = int(bias[0].value.name) if bias else None
        packed = Weight(int(weight.value.name), number, is_transposed)
        self._weights[packed] = None
        operands = [self._operand(value.view), self._operand(x), self._whole(*packed.key, 0)]
        sizes = (x.shape[-1], 1, value.shape[-1])
        self._emit("multiply", value.space, sizes, [operand.of_row for operand in operands])

    def _rows(self, value: Value) -> None:
        """Writes an operation on whole rows."""
        name, index = value.operation, 0
        operands = [self._operand(value.view)]
        if name in FETCHES:
            row = {"gather_previous": "previous_row", "look_up": "kind"}.get(name, "child_row")
            index = self._index((row, ""))
            kind = "table" if name == "look_up" else "read"
            operands.append(self._whole(kind, value.name, value.size))
        elif name == "integer":
            index = self._index((value.name, ""))
        elif name == "pull":
            index = self._index(("outside_row", value.name))
            kinds = "outside", "edge_grad", "node_grad", "previous_grad", "weighted_grad"
            operands += [self._whole(kind, value.name, value.size) for kind in kinds]
            operands.append(self._whole("edge_weight", value.name, 1))
        operands += [self._operand(view) for view in value.inputs]
        self._emit_rows(name, value.space, value.size, operands, index)


def _first_copied(value: Value, regions: Sequence[View]) -> list[str] | None:
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


def _is_whole(region: View, grad: View) -> bool:
    """True if what is asked of a region is asked of all of its value, number by number."""
    value = region.value
    is_plain = region.is_all and (region.space, region.shape) == (value.space, value.shape)
    return is_plain and (grad.space, grad.shape) == (value.space, value.shape)


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
