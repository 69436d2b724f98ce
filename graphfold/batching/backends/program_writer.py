"""Writing native programs: the values of a cell as instructions."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching.backends.operands import OPERAND_SIZE, Operand, Operands
from graphfold.batching.backends.scratch import Fused, Scratch, allocate, fuse, product_of
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.backend import PULLED
from graphfold.batching.compiler.order import known_in, stages_of
from graphfold.batching.compiler.program import (
    ALL_EDGES,
    ROWS,
    SCRATCH,
    TYPE_EDGES,
    TYPE_ROWS,
    Key,
    Place,
)
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPIED,
    EDGES,
    GROUP,
    MEAN_OF_GROUP,
    NODES,
    ON_ROWS,
    WHOLE,
    Operation,
    Unwritable,
    Value,
    View,
    covers,
    first_copied,
)
from graphfold.batching.native.library import operations

#: How often an instruction is carried out, as in native/program.h.
ROWS_OF = {NODES: 0, EDGES: 1, GROUP: 2}

#: What only a type has is a part of what all rows, or all edges, of the plan would have.
IN_PLAN = {TYPE_ROWS: ROWS, TYPE_EDGES: ALL_EDGES}

#: As in native/pass.c and native/program.h.
MAX_BUFFERS = 256
MAX_DIMS = 3
MAX_INPUTS = 6
BUFFER_SIZE = 3
INSTRUCTION_SIZE = 5 + OPERAND_SIZE * (MAX_INPUTS + 1)


class Weight(NamedTuple):
    """A packed weight: the numbers of two constants, and whether it is transposed."""

    weight: int
    bias: int | None
    is_transposed: bool

    @property
    def key(self) -> Key:
        return "packed", f"{self.weight}:{self.bias}:{self.is_transposed}"


@dataclass(frozen=True)
class NativeProgram:
    """Instructions for one direction of a cell, as native/program.h lays them out.

    Args:
        instructions: [num_instructions, 54] numbers.
        buffers: [num_buffers, 3] numbers: space, numbers per row, and of scratch memory the numbers
            per row before it.
        keys: what lies in each buffer (of scratch memory, nothing has to), then in each array of
            integers that it reads.
        of_type: of buffers that only nodes of the type have: which, the numbers per row, and
            whether rows are edges. They begin with the first row of the type.
        numbers: the numbers of the code.
        scratch: how many numbers of scratch memory it takes per node and per edge.
        packed: number of a key -> the packed weight that lies there.
    """

    instructions: array[int]
    buffers: array[int]
    keys: tuple[Key, ...]
    of_type: tuple[tuple[int, int, bool], ...]
    numbers: Tensor
    scratch: tuple[int, int]
    packed: Mapping[int, Weight]

    @cached_property
    def read_constants(self) -> frozenset[Key]:
        """The constants that instructions read, and biases: weights are packed."""
        biases = {weight.bias for weight in self.packed.values()} - {None}
        of_weights = {("constant", str(number)) for number in biases}
        return frozenset({key for key in self.keys if key[0] == "constant"} | of_weights)

    @cached_property
    def sums(self) -> Mapping[Key, int]:
        """The sums that each thread has of its own -> the number of their numbers."""
        sizes = zip(self.keys, self.buffers[1::BUFFER_SIZE], strict=False)
        return {key: size for key, size in sizes if key[0] == "sums"}

    @property
    def head(self) -> list[int]:
        """Its beginning in native memory, for one call; the addresses of `keys` follow."""
        buffers, num_buffers = self.buffers.buffer_info()
        instructions, size = self.instructions.buffer_info()
        counts = num_buffers // BUFFER_SIZE, size // INSTRUCTION_SIZE
        return [buffers, instructions, *counts, *self.scratch]


def write_program(
    dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
) -> NativeProgram:
    """The program that computes some values; see `Backend.write_program`.

    What is no result lies in scratch memory of a block, in a place that later values may take
    again; results lie in buffers of the pass.

    Raises:
        Unwritable: if they take more buffers or dimensions than there are.
    """
    stages = stages_of(values)
    values = sorted(values, key=stages.__getitem__)
    fused = fuse(values, places)
    writer = _Writer(dtype, places, allocate(values, places, fused), fused)
    for stage in range(max((known_in(value, stages) for value in values), default=0) + 1):
        own = [v for v in values if stages[v] == stage and v not in fused]
        own.sort(key=lambda v: v.space != GROUP or v.operation is MEAN_OF_GROUP)
        for value in own:
            writer.compute(value)
        writer.end_stage([value for value in own if value.operation is MEAN_OF_GROUP])
    return writer.finish()


class _Writer:
    def __init__(
        self, dtype: torch.dtype, places: Mapping[Value, Place], scratch: Scratch, fused: Fused
    ) -> None:
        self._dtype, self._scratch, self._fused = dtype, scratch, fused
        self._to, self._operations = Operands(places, scratch, fused), operations(dtype)
        self._packed: dict[int, Weight] = {}
        self._instructions: list[list[int]] = []

    def compute(self, value: Value) -> None:
        """Writes the instructions for a value."""
        operation, out = value.operation, value.view
        product = product_of(value, self._fused)
        if product is not None:
            self._multiply(value, product)
        elif operation.kind == COPIED:
            operands = [self._to.of(out), self._to.fetched(value)]
            self._emit_elementwise(_native(operation), value.space, out.shape, operands)
        elif operation.kind == ON_ROWS:
            self._rows(value)
        elif operation is op.CAT:
            for view, part in out.cut(value.inputs, value.number):
                self._elementwise("copy", part, [view])
        elif operation in (op.REDUCE_SUM, op.REDUCE_MAX):
            (view,) = value.inputs
            is_sum = operation is op.REDUCE_SUM
            self._fill(out, 0.0 if is_sum else -math.inf)
            name = "accumulate" if is_sum else "accumulate_max"
            self._elementwise(name, out.expanded(view.shape), [view])
        elif operation is op.ASSEMBLE:
            self._assemble(value)
        elif operation is MEAN_OF_GROUP:
            operands = [self._sums(value), self._to.of(value.inputs[0])]
            self._emit_rows("sum_of_group", NODES, value.size, operands)
        elif operation is op.ACCUMULATE:
            (grad,), region = value.inputs, value.number
            to = self._to.per_thread("accumulated", value.name, region.value.size)
            to = to._replace(offset=region.offset, steps=region.steps)
            self._emit_elementwise("accumulate", grad.space, grad.shape, [to, self._to.of(grad)])
        elif operation is op.LOOK_UP_ADD:
            self._look_up_add(value)
        else:
            self._elementwise(_native(operation), out, value.inputs)

    def end_stage(self, means: Sequence[Value]) -> None:
        """Lets all blocks end before the next stage, and turns sums over them into means."""
        for value in means:
            operands = [self._to.of(value.view), self._sums(value)]
            self._emit_rows("end_of_stage", GROUP, value.size, operands)

    def finish(self) -> NativeProgram:
        """The program."""
        buffers, numbers = self._to.buffers, [v.literal for v in self._to.numbers]
        if len(buffers) > MAX_BUFFERS:
            raise Unwritable(f"it needs more than {MAX_BUFFERS} buffers")
        columns = [(IN_PLAN.get(space, space), size, start) for space, size, start, _ in buffers]
        of_type = [
            (number, size, space == TYPE_EDGES)
            for number, (space, size, *_) in enumerate(buffers)
            if space in IN_PLAN
        ]
        keys = [SCRATCH if key is None else key for *_, key in buffers]
        return NativeProgram(
            array("q", chain.from_iterable(self._instructions)),
            array("q", chain.from_iterable(columns)),
            (*keys, *self._to.indices),
            tuple(of_type),
            torch.tensor(numbers, dtype=self._dtype, device="cpu"),
            self._scratch.sizes,
            self._packed,
        )

    def _sums(self, mean: Value) -> Operand:
        """The place where each thread adds up what a mean is taken of."""
        return self._to.per_thread("sums", mean.name, mean.size)

    def _elementwise(self, name: str, out: View, inputs: Sequence[View]) -> None:
        """An elementwise operation on views of the shape of `out`."""
        operands = [self._to.of(out), *(self._to.of(v.expanded(out.shape)) for v in inputs)]
        self._emit_elementwise(name, out.space, out.shape, operands)

    def _fill(self, out: View, number: float) -> None:
        self._elementwise("copy", out, [Value(CONSTANT, WHOLE, (), number=number).view])

    def _emit_elementwise(
        self, name: str, space: str, shape: Sequence[int], operands: Sequence[Operand]
    ) -> None:
        sizes, steps = _collapsed(shape, operands)
        placed = [x.laid_out(own) for x, own in zip(operands, steps, strict=True)]
        self._emit(name, space, sizes, placed)

    def _emit_rows(self, name: str, space: str, size: int, operands: Sequence[Operand]) -> None:
        self._emit(name, space, (1, 1, size), [operand.of_row for operand in operands])

    def _emit(
        self, name: str, space: str, sizes: Sequence[int], operands: Sequence[list[int]]
    ) -> None:
        operation = self._operations.get(name)
        if operation is None:
            raise Unwritable(f"there is no native operation '{name}'")
        missing = [[0] * OPERAND_SIZE] * (MAX_INPUTS + 1 - len(operands))
        flat = [number for operand in [*operands, *missing] for number in operand]
        self._instructions.append([operation, ROWS_OF[space], *sizes, *flat])

    def _assemble(self, value: Value) -> None:
        """Adds up the cotangents of the views of a value; the first of a place is copied."""
        regions: tuple[View, ...] = value.number
        names = first_copied(value, regions)
        if names is None:
            self._fill(value.view, 0.0)
            names = ["accumulate"] * len(regions)
        todo = list(zip(regions, value.inputs, names, strict=True))
        if len(todo) > 1 and all(covers(region, grad) for region, grad, _ in todo[:2]):
            self._elementwise("add", value.view, [grad for _, grad, _ in todo[:2]])
            todo = todo[2:]
        for region, grad, name in todo:
            operands = [self._to.of(region), self._to.of(grad)]
            self._emit_elementwise(name, region.space, grad.shape, operands)

    def _multiply(self, value: Value, product: Value) -> None:
        """Writes a product, with a row added to it and relu if a value is computed so."""
        x, weight, *bias = product.inputs
        number = int(bias[0].value.name) if bias else None
        is_transposed = product.operation is op.MULTIPLY_TRANSPOSED
        packed = Weight(int(weight.value.name), number, is_transposed)
        operands = [self._to.of(value.view), self._to.of(x), self._to.whole(*packed.key, 0)]
        self._packed[operands[-1].buffer] = packed
        end, name = value, ""
        if end.operation is op.RELU:
            (view,) = end.inputs
            end, name = view.value, "_relu"
        if end.operation is op.ADD:
            (added,) = (view for view in end.inputs if view.value is not product)
            operands.append(self._to.of(added))
            name = f"_add{name}"
        sizes = (x.shape[-1], 1, value.shape[-1])
        self._emit(f"multiply{name}", value.space, sizes, [operand.of_row for operand in operands])

    def _look_up_add(self, value: Value) -> None:
        size, number = self._to.index("table_size", value.name), self._to.index("kind")
        table = self._to.whole("table_grad", value.name, 0)._replace(read=size)
        grad = self._to.of(value.inputs[0])._replace(read=number)
        self._emit_rows(_native(value.operation), EDGES, value.size, [table, grad])

    def _rows(self, value: Value) -> None:
        """Writes an operation on whole rows."""
        operation, to = value.operation, self._to
        operands = [to.of(value.view)]
        if operation.fetched is not None:
            operands.append(to.fetched(value))
        elif operation is op.INTEGER:
            operands.append(operands[0]._replace(read=to.index(value.name)))
        elif operation is op.PULL:
            kinds = "upstream", *PULLED
            parts = [to.whole(kind, value.name, value.size) for kind in kinds]
            parts[0] = parts[0]._replace(read=to.index("upstream_row", value.name))
            operands += [*parts, to.whole("edge_weight", value.name, 1)]
        operands += [to.of(view) for view in value.inputs]
        self._emit_rows(_native(operation), value.space, value.size, operands)


def _native(operation: Operation) -> str:
    """The name of an operation in native code."""
    return operation.native or operation.name


def _collapsed(
    shape: Sequence[int], operands: Sequence[Operand]
) -> tuple[list[int], list[list[int]]]:
    """Three sizes and the steps of every operand, with dimensions joined where they lie so.

    The last dimension is one of steps 1 or 0; the run over it is the inner loop.

    Raises:
        Unwritable: if there are more dimensions.
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
        raise Unwritable(f"it has tensors of more than {MAX_DIMS} dimensions after the rows")
    dims = [(1, [0] * len(operands))] * missing + dims
    sizes = [size for size, _ in dims]
    return sizes, [[steps[number] for _, steps in dims] for number in range(len(operands))]
