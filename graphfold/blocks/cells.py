"""The cells that run the operations of a block model on the engine.

What a node stores are fields of rows, one for each output: "0:float32[150]" is the first output,
150 numbers of that type. A tensor of any shape is a row there; integers are stored exactly, byte by
byte, since the engine's buffers hold floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from graphfold.batching import Cell, Children, NodeInput, State
from graphfold.blocks.constants import ConstantTensor
from graphfold.blocks.function import Function, compute
from graphfold.blocks.precision import in_dtype
from graphfold.blocks.types import TensorType
from graphfold.blocks.values import Constant

if TYPE_CHECKING:
    from graphfold.blocks.operations import Source


class Precision:
    """The floating-point dtype in which a model computes at present.

    Attributes:
        dtype: the dtype.
    """

    def __init__(self) -> None:
        self.dtype = torch.float32


class FunctionCell(Cell):
    """Calls a function for a group of nodes.

    Args:
        function: a block that calls it.
        sources: how each tensor comes; see `Signature`.
        constants: those among them, by name.
        arity: the number of children.
        precision: that of the model.
    """

    reads = ()  # the types have been checked, which says more than the names of fields

    def __init__(
        self,
        function: Function,
        sources: Sequence[Source],
        constants: Mapping[str, ConstantTensor],
        arity: int,
        precision: Precision,
    ) -> None:
        super().__init__()
        self.fn = function.fn
        self.whose = str(function)
        self.arity = arity
        self.input_type = function.input_type
        self.sources = tuple(sources)
        self.kinds = tuple(function.input_tensors)
        self.outputs = {field_of(n, k): k for n, k in enumerate(function.output_tensors)}
        self.fields = {name: row_width(kind) for name, kind in self.outputs.items()}
        self.constants = nn.ModuleDict(constants)
        self.precision = precision

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
        assert self.input_type is not None
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
        self.fields = function.fields

    def compute(self, size: int, x: Mapping[str, Tensor]) -> State:
        """The fields of all nodes of the type, from their columns."""
        return self._function[0].compute(size, x, None)

    def forward(self, x: NodeInput, children: Children) -> State:
        assert isinstance(x, Mapping)
        return x


class ReductionCell(Cell):
    """Reduces one output of any number of children.

    Args:
        how: "sum", "mean", "min" or "max".
        kind: the type of the tensors.
        field: which output of the children.
        precision: that of the model.
    """

    reads = ()

    def __init__(self, how: str, kind: TensorType, field: str, precision: Precision) -> None:
        super().__init__()
        self.how = how
        self.kind = kind
        self.field = field
        self.precision = precision
        self.output = field_of(0, kind)
        self.fields = {self.output: row_width(kind)}

    def forward(self, x: NodeInput, children: Children) -> State:
        if not self.kind.is_floating_point:
            rows = from_rows(children.rows(self.field), self.kind)
            values = rows.reshape(rows.shape[0], self.kind.size)
            total = _reduce_integers(self.how, values, children)
            return {self.output: to_rows(total, self.kind, self.precision.dtype)}
        if self.how == "sum":
            return {self.output: children.sum(self.field)}
        if self.how == "mean":
            return {self.output: children.mean(self.field)}
        if self.how == "max":
            return {self.output: children.max(self.field)}
        # Zero minus, since the minimum of nothing is 0 and not -0.
        return {self.output: 0 - children.max(-children.rows(self.field))}


def field_of(number: int, kind: TensorType) -> str:
    """The field that stores output `number` of a node, if that has the type."""
    return f"{number}:{kind.dtype}[{kind.size}]"


def row_width(kind: TensorType) -> int:
    """How many numbers of a buffer hold a tensor."""
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


def _reduce_integers(how: str, values: Tensor, children: Children) -> Tensor:
    """[group_size, width] exact; zeros of none."""
    whole = values.to(torch.int64)
    total = whole.new_zeros(children.group_size, whole.shape[1])
    parent = children.parent.unsqueeze(1).expand_as(whole)
    name = {"sum": "sum", "max": "amax", "min": "amin"}[how]
    return total.scatter_reduce(0, parent, whole, name, include_self=how == "sum")
