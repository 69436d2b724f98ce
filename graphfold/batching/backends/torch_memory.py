"""The torch backend: programs are functions of a group, made of torch's operations.

It runs on every device and in every dtype that torch has, and needs no compiler. No autograd graph
is kept: backward runs programs of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.batching.backends.torch_indices import GroupIndices, Parts
from graphfold.batching.backends.torch_program import Argument, Pulled, TorchProgram, pull
from graphfold.batching.backends.torch_writer import TorchWriter
from graphfold.batching.compiler.backend import PULLED, Backend, Memory
from graphfold.batching.compiler.program import (
    ALL_EDGES,
    ONE,
    ROWS,
    TYPE_EDGES,
    Key,
    Named,
    Place,
    Program,
    Rows,
    WeightGradient,
)
from graphfold.batching.compiler.values import Value
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

#: Plan -> its indices, which forward and backward share, as long as the plan lives.
_INDICES: WeakKeyDictionary[PassSchedule, GroupIndices] = WeakKeyDictionary()


class TorchMemory(Memory):
    """The memory of a pass that torch's operations run."""

    def __init__(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> None:
        super().__init__(plan, dtype, is_backward)
        self._indices = _INDICES.setdefault(plan, GroupIndices())
        self._like = torch.empty(0, dtype=dtype, device=plan.row.device)
        self._rows: dict[Named, Parts] = {}
        # Field -> [num_rows] bool, whether a row has an upstream gradient; if few may have one.
        self._has_upstream: dict[str, npt.NDArray[np.bool_]] = {}

    def run(self, programs: Mapping[int, Program]) -> None:
        calls = {}
        for op_type, program in programs.items():
            assert isinstance(program, TorchProgram)
            calls[op_type] = program.run, self._arguments(op_type, program)
        groups = self.plan.groups
        for group in reversed(groups) if self.is_backward else groups:
            if group.op_type in calls:
                run, arguments = calls[group.op_type]
                run(*next(arguments))

    def count_sums(self, op_type: int) -> int:
        return len(self.plan.groups_by_type[op_type])

    def place_sparse(self, field: str, grad: Tensor) -> None:
        # Two launches on a GPU; to sort the rows takes twenty, and waits.
        (rows,), values = grad._indices(), grad._values()
        self.shared["upstream", field] = values.new_zeros(grad.shape).index_add_(0, rows, values)
        if rows.is_cpu:
            self._has_upstream[field] = np.zeros(len(grad), np.bool_)
            self._has_upstream[field][rows.numpy()] = True

    def pull(self, field: str, first: int, total: Tensor) -> Tensor:
        (pulled,) = self._pulled(field, [first], range(first, first + len(total)))
        return pull(pulled, total, *total.shape)

    def sum_products(self, op_type: int, product: WeightGradient) -> tuple[Tensor, Tensor | None]:
        shape = self.own[op_type]["constant", str(product.weight)].shape
        k, m = shape[::-1] if product.is_transposed else shape
        grad, x = self._factor(op_type, product.grad, m), self._factor(op_type, product.x, k)
        weight = torch.mm(grad.t(), x) if product.is_transposed else torch.mm(x.t(), grad)
        return weight, None if product.bias is None else grad.sum(0)

    def _factor(self, op_type: int, rows: Rows, width: int) -> Tensor:
        """[num_rows, width] a factor of the gradient of a weight."""
        if rows.parts:
            first = self.first_row[None].get(rows.key, 0)
            index = self.plan.child_row[self.plan.types[op_type].edges]
            values = self.shared[rows.key].index_select(0, index - first if first else index)
            return values.view(-1, width)
        values = self._find(op_type, rows.key).flatten(1)
        return values[:, rows.offset : rows.offset + width]

    def _find(self, op_type: int, key: Key) -> Tensor:
        own = self.own[op_type].get(key)
        return self.shared[key] if own is None else own

    # The arguments of programs.

    def _arguments(self, op_type: int, program: TorchProgram) -> Iterator[tuple[Any, ...]]:
        """The arguments of the function of a program, group by group."""
        groups = self.plan.groups_by_type[op_type]
        groups = groups[::-1] if self.is_backward else groups
        starts = [group.start for group in groups]
        columns = [self._column(op_type, own, groups, starts) for own in program.arguments]
        return zip([g.size for g in groups], [g.num_edges for g in groups], *columns, strict=False)

    def _column(
        self, op_type: int, argument: Argument, groups: Sequence[Group], starts: Sequence[int]
    ) -> Iterable[Any]:
        """One of the arguments, for each of some groups of a type, by their first rows."""
        kind, key, plan = argument.kind, argument.key, self.plan
        if kind in ("whole", "weight"):
            return repeat(self._find(op_type, key))
        if kind == "transposed":
            return repeat(self._find(op_type, key).t())
        if kind == "number":
            return repeat(self._like.new_full((), argument.number))
        if kind == "like":
            return repeat(self._like)
        if kind == "sums":
            rows = self._find(op_type, key).unbind(0)
            return rows[::-1] if self.is_backward else rows
        if kind == "pulled":
            return self._pulled(key[1], starts, upstream=self._upstream(op_type, key[1], groups))
        if kind == "piece":
            parts = self._pieces(op_type, key, argument.space, groups)
        elif kind in ("kind", "integer"):
            integers = (
                self.shared["kind", ""] if kind == "kind" else self.shared[key].to(self.dtype)
            )
            parts = plan.split_edges(integers)
        else:
            parts = self._indices.parts(plan, kind, self.first_row[None].get(key, 0))
            if kind == "edge_count":
                return [parts[start].to(self.dtype) for start in starts]
        return [parts[start] for start in starts]

    def _pieces(
        self, op_type: int, key: Key, space: int, groups: Sequence[Group]
    ) -> Mapping[int, Tensor]:
        """First row of a group -> its rows of a tensor."""
        tensor, by_edge = self._find(op_type, key), space in (ALL_EDGES, TYPE_EDGES)
        if space == ONE:
            return dict.fromkeys((group.start for group in groups), tensor)
        if space in (ROWS, ALL_EDGES):
            named = op_type if key in self.own[op_type] else None, key
            first = self.first_row[named[0]].get(key, 0)
            if first or len(groups) == 1:
                own = [
                    g.edges if by_edge else slice(g.start - first, g.stop - first) for g in groups
                ]
                return {g.start: tensor[rows] for g, rows in zip(groups, own, strict=True)}
            if named not in self._rows:
                split = self.plan.split_edges if by_edge else self.plan.split_rows
                self._rows[named] = split(tensor)
            return self._rows[named]
        if len(groups) == 1:
            return {groups[0].start: tensor}
        ordered = self.plan.groups_by_type[op_type]
        parts = tensor.split_with_sizes([g.num_edges if by_edge else g.size for g in ordered])
        return dict(zip((group.start for group in ordered), parts, strict=True))

    def _pulled(
        self,
        field: str,
        starts: Sequence[int],
        rows: range | None = None,
        upstream: Mapping[int, Tensor] = MappingProxyType({}),
    ) -> list[Pulled]:
        """The parts of the gradient of a field, for the rows of some groups.

        Args:
            field: the field.
            starts: the first row of each group.
            rows: of what is one group for once; None for groups of the plan.
            upstream: first row of a group -> the gradient from outside of the pass.
        """
        left = []
        for kind in PULLED:
            if (kind, field) in self.shared:
                first, weight = self.first_row[None].get((kind, field), 0), None
                if kind == "weighted_grad":  # in the order of `reader_edge`
                    weight = self.shared["edge_weight", field].view(-1)
                    weight = weight.index_select(0, self.plan.reader_edge)
                readers = self._indices.readers(self.plan, kind, first, rows)
                left.append((self.shared[kind, field], readers, weight))
        return [
            Pulled(
                upstream.get(start),
                [
                    (values, own.reader, own.ptr, None if weight is None else weight[own.among])
                    for values, readers, weight in left
                    if (own := readers.get(start))
                ],
                max((readers[start].most for _, readers, _ in left if start in readers), default=0),
            )
            for start in starts
        ]

    def _upstream(self, op_type: int, field: str, groups: Sequence[Group]) -> Mapping[int, Tensor]:
        """First row of a group -> the gradient of its rows from outside of the pass, if any."""
        key = "upstream", field
        if key not in self.own[op_type] and key not in self.shared:
            return {}
        parts = self._pieces(op_type, key, ROWS, groups)
        has = self._has_upstream.get(field)
        if has is None:
            return parts
        # Nothing is added to groups that have none.
        return {group.start: parts[group.start] for group in groups if has[group.rows].any()}


class TorchBackend(Backend):
    """Programs are functions of torch's operations, called group by group."""

    name, label = "torch", "operations of torch"
    devices: ClassVar[Sequence[str]] = ("cpu", "cuda")
    recomputes = False

    def why_not(self, device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type not in self.devices:
            devices = " and ".join(self.devices)
            return f"the backend '{self.name}' runs on {devices}, not on {device.type}"
        if dtype not in DTYPES:
            dtypes = ", ".join(map(str, DTYPES))
            return f"the backend '{self.name}' computes {dtypes}, not {dtype}"
        return None

    def write_program(
        self, dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
    ) -> TorchProgram:
        return TorchWriter(dtype, values, places).run()

    def memory(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> TorchMemory:
        return TorchMemory(plan, dtype, is_backward)
