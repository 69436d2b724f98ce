"""The cells that run the primitives of a block model on the engine.

A node stores one field for each output: "0:float32[150]" is the first output, 150 numbers of that
type. A tensor of any shape is a row of the field; integers are stored exactly, byte by byte, since
the engine's buffers hold floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from graphfold.batching import Cell, Children, NodeInput, State
from graphfold.blocks.block_errors import BlockTypeError, quoted
from graphfold.blocks.inference.types import (
    ResultType,
    TensorType,
    TupleType,
    in_dtype,
    tensor_types,
)
from graphfold.errors import add_note


class Constant(NamedTuple):
    """A tensor that is the same for every example, perhaps learned."""

    name: str  # of the module that holds it


#: The source of a tensor: None (the example), a `Constant`, or (slot, output number) of a child.
Source: TypeAlias = Constant | tuple[int, int] | None


@dataclass
class Precision:
    """The floating-point dtype in which a model computes now; shared by its cells."""

    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class CellContext:
    """Facts for a cell, from the model and from the type of its nodes.

    Attributes:
        sources: the source of each tensor; of a reduction, the output number to read of each child.
        arity: the number of children; None for any.
        constants: name -> module, of the constants among the sources.
        precision: the dtype of the model.
    """

    sources: tuple[Source, ...] | int
    arity: int | None
    constants: Mapping[str, nn.Module]
    precision: Precision


class FunctionCell(Cell):
    """Calls a function for a group of nodes.

    Args:
        fn: the function.
        block: the name of the block in messages.
        takes: the type of its input.
        gives: the types of the tensors that it returns.
        context: the sources of the tensors.
    """

    reads = ()  # the types are checked already, which is more than the names of fields

    def __init__(
        self,
        fn: Callable[..., Any],
        block: str,
        takes: ResultType,
        gives: Sequence[TensorType],
        context: CellContext,
    ) -> None:
        super().__init__()
        assert isinstance(context.sources, tuple)
        self.fn = fn
        self.block = block
        self.arity = context.arity
        self.input_type = takes
        self.sources = context.sources
        self.kinds = tuple(tensor_types(takes) or ())
        self.outputs = {field_of(n, k): k for n, k in enumerate(gives)}
        self.fields = {name: row_width(kind) for name, kind in self.outputs.items()}
        self.constants = nn.ModuleDict(context.constants)
        self.precision = context.precision

    def forward(self, x: NodeInput, children: Children) -> State:
        assert isinstance(x, Mapping)
        size = next(iter(x.values())).shape[0]
        return self.compute(size, x, children)

    def compute(self, size: int, x: Mapping[str, Tensor], children: Children | None) -> State:
        """The fields of some nodes.

        Args:
            size: the number of nodes.
            x: their columns.
            children: their children; None for leaves.
        """
        dtype = self.precision.dtype
        slots: dict[str, Sequence[Tensor]] = {}  # a field of all children, read once
        flat = []
        for number, (source, kind) in enumerate(zip(self.sources, self.kinds, strict=True)):
            if source is None:
                flat.append(x[f"x{number}"].to(in_dtype(kind, dtype)))
            elif isinstance(source, Constant):
                value: Tensor = self.constants[source.name]().to(in_dtype(kind, dtype))
                flat.append(value.unsqueeze(0).expand(size, *kind.shape))
            else:
                slot, output = source
                field = field_of(output, kind)
                if field not in slots:
                    assert children is not None
                    slots[field] = children.stack(field).unbind(1)  # for one gradient together
                flat.append(from_rows(slots[field][slot], kind))
        kinds = list(self.outputs.values())
        results = compute(self.block, self.fn, self.input_type, flat, kinds, size)
        return {
            name: to_rows(result, kind, dtype)
            for (name, kind), result in zip(self.outputs.items(), results, strict=True)
        }


class LeafCell(Cell):
    """Stores the results of a function without children, computed before the engine runs.

    The function is called once for all leaves of a type, outside of the engine: masks are drawn in
    node order, statistics see all nodes, and gradients may be sparse.

    Args:
        function: the cell of the function. It is no submodule: the engine would differentiate its
            parameters.
    """

    arity = 0

    def __init__(self, function: FunctionCell) -> None:
        super().__init__()
        self._function = (function,)
        self.block = function.block
        self.fields = function.fields

    def compute(self, size: int, x: Mapping[str, Tensor]) -> State:
        """The fields of all nodes of the type, from their columns."""
        return self._function[0].compute(size, x, None)

    def forward(self, x: NodeInput, children: Children) -> State:
        assert isinstance(x, Mapping)
        return x


class ReductionCell(Cell):
    """Reduces one output of any number of children to a tensor of the same type.

    Args:
        reduce: from children and a field to the reduced rows, [group_size, width].
        scatter: its name in `torch.scatter_reduce`, for integers.
        kind: the type of the tensors.
        context: the output of the children to read.
    """

    reads = ()

    def __init__(
        self,
        reduce: Callable[[Children, str], Tensor],
        scatter: str | None,
        kind: TensorType,
        context: CellContext,
    ) -> None:
        super().__init__()
        assert isinstance(context.sources, int)
        self.reduce = reduce
        self.scatter = scatter
        self.kind = kind
        self.field = field_of(context.sources, kind)
        self.precision = context.precision
        self.output = field_of(0, kind)
        self.fields = {self.output: row_width(kind)}

    def forward(self, x: NodeInput, children: Children) -> State:
        if self.kind.is_floating_point:
            return {self.output: self.reduce(children, self.field)}
        assert self.scatter is not None
        rows = from_rows(children.rows(self.field), self.kind)
        values = rows.reshape(rows.shape[0], self.kind.size)
        total = _reduce_integers(self.scatter, values, children)
        return {self.output: to_rows(total, self.kind, self.precision.dtype)}


def field_of(number: int, kind: TensorType) -> str:
    """The field that stores output `number` of a node, of that type."""
    return f"{number}:{kind.dtype}[{kind.size}]"


def row_width(kind: TensorType) -> int:
    """The number of numbers in a buffer that hold a tensor."""
    return kind.size * (1 if kind.is_floating_point else kind.torch_dtype.itemsize)


def to_rows(values: Tensor, kind: TensorType, dtype: torch.dtype) -> Tensor:
    """[num_rows, row_width] tensors as rows of numbers of the buffers' dtype."""
    size = values.shape[0]
    if kind.is_floating_point:
        return values.to(dtype).reshape(size, kind.size)
    values = values.to(kind.torch_dtype).reshape(size, kind.size).contiguous()
    return values.view(torch.uint8).to(dtype)


def from_rows(rows: Tensor, kind: TensorType) -> Tensor:
    """[num_rows, ...] the tensors in rows; the inverse of `to_rows`."""
    if not kind.is_floating_point:
        rows = rows.to(torch.uint8).contiguous().view(kind.torch_dtype)
    return rows.reshape(rows.shape[0], *kind.shape)


def _reduce_integers(scatter: str, values: Tensor, children: Children) -> Tensor:
    """[group_size, width] the exact reductions; zeros without children."""
    values = values.to(torch.int64)
    total = values.new_zeros(children.group_size, values.shape[1])
    parent = children.parent.unsqueeze(1).expand_as(values)
    return total.scatter_reduce(0, parent, values, scatter, include_self=scatter == "sum")


def compute(
    block: str,
    fn: Callable[..., Any],
    kind: ResultType,
    flat: Sequence[Any],
    outputs: Sequence[TensorType],
    size: int,
) -> list[Tensor]:
    """The tensors that a function returns for a batch.

    Args:
        block: the name of the block in messages.
        fn: the function.
        kind: the type of its input.
        flat: its input tensors, [size, ...] each.
        outputs: the expected types of its output tensors. The dtype of a floating-point tensor may
            be any floating-point one.
        size: the size of the batch.

    Raises:
        BlockTypeError: if it returns something else.
    """
    try:
        results = flat_outputs(fn(*arguments(kind, flat)))
    except Exception as error:
        add_note(error, f"in {block}")
        raise
    if len(results) != len(outputs):
        raise BlockTypeError(
            f"{block} gave {len(results)} tensors, but its output type has {len(outputs)}: "
            f"{', '.join(map(str, outputs))}. Return as many, or declare another type."
        )
    for result, output in zip(results, outputs, strict=True):
        _require_type(block, result, output, size)
    return results


def arguments(kind: ResultType, flat: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a function of an input type, from its flat tensors."""
    if isinstance(kind, TensorType) or is_flat(kind):
        return flat
    nested: Sequence[Any] = kind.unflatten(iter(flat))
    return nested


def flat_outputs(result: Any) -> list[Any]:
    """The tensors in a result of nested tuples and lists, in order."""
    if not isinstance(result, (tuple, list)):
        return [result]
    return [tensor for item in result for tensor in flat_outputs(item)]


def _require_type(block: str, result: Any, kind: TensorType, size: int) -> None:
    if not isinstance(result, Tensor):
        raise BlockTypeError(
            f"{block} gave {quoted(result)}, which is not a tensor. Return tensors."
        )
    floats = kind.is_floating_point and result.is_floating_point()
    if result.shape != (size, *kind.shape) or not (floats or result.dtype == kind.torch_dtype):
        dtype = str(result.dtype).removeprefix("torch.")
        raise BlockTypeError(
            f"{block} gave a {dtype} tensor of shape {list(result.shape)} for {size} nodes of "
            f"output type {kind}. Treat every row for itself, and return one type."
        )


def is_flat(kind: ResultType) -> bool:
    """True for a tuple that holds only tensors."""
    return isinstance(kind, TupleType) and all(isinstance(item, TensorType) for item in kind)
