"""The cells that run the primitives of a block model on the engine.

What a node stores are fields of rows, one for each output: "0:float32[150]" is the first output,
150 numbers of that type. A tensor of any shape is a row there; integers are stored exactly, byte by
byte, since the engine's buffers hold floating-point numbers.
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


#: How a tensor comes: None (from the example), a `Constant`, or (slot, output number) of a child.
Source: TypeAlias = Constant | tuple[int, int] | None


class Precision:
    """The floating-point dtype in which a model computes at present.

    Attributes:
        dtype: the dtype.
    """

    def __init__(self) -> None:
        self.dtype = torch.float32


@dataclass(frozen=True)
class CellContext:
    """Facts for a cell, from the model and from the type of its nodes.

    Attributes:
        sources: how each tensor comes; where any number of children is reduced, which of their
            outputs.
        arity: the number of children; None for any.
        constants: the modules that hold those among the sources, by name.
        precision: that of the model.
    """

    sources: tuple[Source, ...] | int
    arity: int | None
    constants: Mapping[str, nn.Module]
    precision: Precision


class FunctionCell(Cell):
    """Calls a function for a group of nodes.

    Args:
        fn: the function.
        whose: what messages name.
        takes: the type of its input.
        gives: the types of the tensors that it gives.
        context: how the tensors come.
    """

    reads = ()  # the types have been checked, which says more than the names of fields

    def __init__(
        self,
        fn: Callable[..., Any],
        whose: str,
        takes: ResultType,
        gives: Sequence[TensorType],
        context: CellContext,
    ) -> None:
        super().__init__()
        assert isinstance(context.sources, tuple)
        self.fn = fn
        self.whose = whose
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
            size: how many nodes.
            x: their columns.
            children: what they read; None for leaves.
        """
        read = _SlotReader(children)
        flat = [
            self._argument(n, source, kind, size, x, read)
            for n, (source, kind) in enumerate(zip(self.sources, self.kinds, strict=True))
        ]
        kinds = list(self.outputs.values())
        results = compute(self.whose, self.fn, self.input_type, flat, kinds, size)
        dtype = self.precision.dtype
        return {
            name: to_rows(result, kind, dtype)
            for (name, kind), result in zip(self.outputs.items(), results, strict=True)
        }

    def _argument(
        self,
        number: int,
        source: Source,
        kind: TensorType,
        size: int,
        x: Mapping[str, Tensor],
        read: _SlotReader,
    ) -> Tensor:
        if source is None:
            return x[f"x{number}"].to(in_dtype(kind, self.precision.dtype))
        if isinstance(source, Constant):
            value: Tensor = self.constants[source.name]()
            value = value.to(in_dtype(kind, self.precision.dtype))
            return value.unsqueeze(0).expand(size, *kind.shape)
        slot, output = source
        return from_rows(read.rows(slot, field_of(output, kind)), kind)


class _SlotReader:
    """Reads children one by one, each field once.

    Args:
        children: the children; None for leaves, which read nothing.
    """

    def __init__(self, children: Children | None) -> None:
        self._children = children
        self._parts: dict[str, Sequence[Tensor]] = {}

    def rows(self, slot: int, field: str) -> Tensor:
        """[group_size, width] a field of the child in a slot."""
        if field not in self._parts:
            assert self._children is not None
            # Taken apart together, they get their gradients together.
            self._parts[field] = self._children.stack(field).unbind(1)
        return self._parts[field][slot]


class LeafCell(Cell):
    """Stores what a function without children has computed, before the engine runs.

    All leaves of a type are known at once, so their function is called once, outside of the engine:
    masks are drawn in node order, statistics see all nodes, and gradients may be sparse.

    Args:
        function: the cell of the function. It is not a part of this one, whose parameters the
            engine would take for its own.
    """

    arity = 0

    def __init__(self, function: FunctionCell) -> None:
        super().__init__()
        self._function = (function,)
        self.whose = function.whose
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
        scatter: what `torch.scatter_reduce` calls it, for integers.
        kind: the type of the tensors.
        context: which output of the children.
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
    """The field that stores output `number` of a node, if that has the type."""
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
    """[group_size, width] exact; zeros of none."""
    whole = values.to(torch.int64)
    total = whole.new_zeros(children.group_size, whole.shape[1])
    parent = children.parent.unsqueeze(1).expand_as(whole)
    return total.scatter_reduce(0, parent, whole, scatter, include_self=scatter == "sum")


def compute(
    whose: str,
    fn: Callable[..., Any],
    kind: ResultType,
    flat: Sequence[Any],
    outputs: Sequence[TensorType],
    size: int,
) -> list[Tensor]:
    """The tensors that a function gives for a batch.

    Args:
        whose: what messages name.
        fn: the function.
        kind: the type of its input.
        flat: the tensors that it takes, [size, ...] each.
        outputs: the types of the tensors that it should give. A floating-point tensor may have any
            such dtype: it takes that of the model.
        size: the size of the batch.

    Raises:
        BlockTypeError: if it gives something else.
    """
    try:
        results = flat_outputs(fn(*arguments(kind, flat)))
    except Exception as error:
        add_note(error, f"in {whose}")
        raise
    if len(results) != len(outputs):
        raise BlockTypeError(
            f"{whose} gave {len(results)} tensors, but its output type has {len(outputs)}: "
            f"{', '.join(map(str, outputs))}. Return as many, or declare another type."
        )
    for result, output in zip(results, outputs, strict=True):
        _require_type(whose, result, output, size)
    return results


def arguments(kind: ResultType, flat: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a function that takes the type, from its flat tensors."""
    if isinstance(kind, TensorType) or is_flat(kind):
        return flat
    found: Sequence[Any] = kind.unflatten(iter(flat))
    return found


def flat_outputs(result: Any) -> list[Any]:
    """The tensors that a function returned, without its tuples and lists."""
    if not isinstance(result, (tuple, list)):
        return [result]
    return [tensor for item in result for tensor in flat_outputs(item)]


def _require_type(whose: str, result: Any, kind: TensorType, size: int) -> None:
    if not isinstance(result, Tensor):
        raise BlockTypeError(
            f"{whose} gave {quoted(result)}, which is not a tensor. Return tensors."
        )
    floats = kind.is_floating_point and result.is_floating_point()
    if result.shape != (size, *kind.shape) or not (floats or result.dtype == kind.torch_dtype):
        dtype = str(result.dtype).removeprefix("torch.")
        raise BlockTypeError(
            f"{whose} gave a {dtype} tensor of shape {list(result.shape)} for {size} nodes of "
            f"output type {kind}. Treat every row for itself, and return one type."
        )


def is_flat(kind: ResultType) -> bool:
    """True for a tuple of nothing but tensors."""
    return isinstance(kind, TupleType) and all(isinstance(item, TensorType) for item in kind)
