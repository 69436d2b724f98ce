"""States: the results of the passes, in node order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import is_batched
from graphfold.batching.engine.field_sources import FieldsByType
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import RowIndex, as_index, select_rows, sum_rows
from graphfold.batching.kernels.segment import segment_sum
from graphfold.dag import Schema


class States(Mapping[str, Tensor]):
    """The fields of all nodes after the passes.

    The rows stay where the engine put them until a field is asked for.

    Args:
        fields: field -> [num_rows + 1, width] in row order; row 0 belongs to no node.
        row: [num_nodes] the row of each node; equal nodes may have one row.
        has: op type -> the fields that its nodes have.
        sparse: the fields whose gradient may be sparse.
    """

    def __init__(
        self,
        fields: Mapping[str, Tensor],
        row: Tensor | RowIndex,
        has: FieldsByType,
        sparse: Collection[str] = (),
    ) -> None:
        self._fields = fields
        self._row = as_index(row)
        self._has = has
        self._sparse = sparse

    def __getitem__(self, field: str) -> Tensor:
        """[num_nodes, width] a field in node order; zeros for nodes whose type lacks it."""
        return select_rows(self._fields[field], self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def at(self, field: str, nodes: Tensor | RowIndex) -> Tensor:
        """[len(nodes), width] the field of some nodes, which have it.

        On a GPU, give nodes that are known on the CPU as well (`RowIndex.of`): where they are not,
        they are sorted there, or what several add to one row comes in any order.
        """
        rows = self._row.at(as_index(nodes))
        if isinstance(self._fields, TypedFields):
            return select_rows(*self._fields.find(field, rows))
        values = self._fields[field]
        is_sparse = field in self._sparse and values.requires_grad
        if is_sparse and (values.is_cpu or rows.rows_on_cpu is None):
            found: Tensor = _Rows.apply(values, rows.rows)  # type: ignore[no-untyped-call]
            return found
        return select_rows(values, rows)

    def sum(self, field: str, nodes: Tensor | RowIndex, ptr: Tensor) -> Tensor:
        """[len(ptr) - 1, width] sums over nodes ptr[i] .. ptr[i+1] of some that have the field."""
        if not isinstance(self._fields, TypedFields):
            return segment_sum(self.at(field, nodes), ptr)
        rows = self._row.at(as_index(nodes))
        return sum_rows(*self._fields.find(field, rows), ptr)

    def of(self, nodes: RowIndex, num_types: int) -> States:
        """The states of some nodes, numbered in their order, which are of the first types."""
        has = {op_type: own for op_type, own in self._has.items() if op_type < num_types}
        return States(self._fields, self._row.at(nodes), has, self._sparse)

    def has(self, field: str, op_type: Tensor) -> Tensor:
        """[num_nodes] bool, whether nodes of these types have the field."""
        found = torch.zeros_like(op_type, dtype=torch.bool)
        for number in self.types(field):  # few; as a tensor they would have to be sent to a GPU
            found |= op_type == number
        return found

    def types(self, field: str) -> frozenset[int]:
        """The types whose nodes have the field, as indices into the schema."""
        return frozenset(op_type for op_type, own in self._has.items() if field in own)

    def is_everywhere(self, field: str, schema: Schema) -> bool:
        """True if nodes of all types have the field, known without asking a GPU."""
        return len(self.types(field)) == len(schema.types)


class _Rows(torch.autograd.Function):
    """Some rows of a field, with a sparse gradient, since a loss at roots has few rows."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, rows: Tensor) -> Tensor:
        ctx.shape = state.shape
        ctx.save_for_backward(rows)
        return state.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        if is_batched(grad):
            return grad.new_zeros(ctx.shape).index_add(0, rows, grad), None
        return torch.sparse_coo_tensor(
            rows.unsqueeze(0), grad, ctx.shape, check_invariants=False
        ), None
