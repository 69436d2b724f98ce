"""Trials: made-up groups on which the programs of a cell are tried beside the cell itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.trace import Signature
from graphfold.batching.engine.compiled.compiled_rounds import run_compiled_rounds
from graphfold.batching.engine.compiled.compiled_run import run_compiled
from graphfold.batching.engine.eager import run_eager, run_eager_rounds
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.engine.rounds import RoundsInputs
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.kernels.segment import NATIVE
from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.batching.scheduling.passes import Rounds
from graphfold.batching.scheduling.plan import plan_levels
from graphfold.batching.scheduling.schedule import Schedule, build_schedule
from graphfold.batching.scheduling.sources import CellInputs
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema

#: A name, the shape of a row, the dtype, and whether it may require a gradient.
Part = tuple[str, tuple[int, ...], torch.dtype, bool]
#: How many rows the tables have that cells make of the edges' columns.
NUM_KINDS = 3


class Trial(ABC):
    """Numbers of both signs for all that a cell may read.

    Args:
        cell: the cell.
        signature: what it may read.
        size: how many nodes there are.
        most: how many children each has at most.
    """

    #: Whether it is a round of message passing.
    in_rounds: ClassVar[bool]

    def __init__(self, cell: Cell, signature: Signature, size: int, most: int) -> None:
        self.cell, self.signature, self.size, self._most = cell, signature, size, most
        self._generator = torch.Generator("cpu").manual_seed(size + most)
        self._given: list[Tensor] = []
        # What earlier passes computed, also of fields that this one writes.
        widths = dict(signature.fields)
        written = dict.fromkeys(signature.written & widths.keys(), True)
        wanted = {**written, **dict(signature.given)}
        self._fields = {name: (widths[name], grad) for name, grad in wanted.items()}
        self._make(most)

    @abstractmethod
    def _make(self, most: int) -> None:
        """Makes the graph and its numbers."""

    @abstractmethod
    def run_compiled(self, compiled: CompiledCell) -> list[Tensor]:
        """The results of the programs, field by field."""

    @abstractmethod
    def run_eager(self) -> list[Tensor]:
        """The results of the cell."""

    @abstractmethod
    def run_alone(self) -> list[Tensor]:
        """The results of the cell if it is called for one node at a time."""

    def leaves(self) -> Iterator[Tensor]:
        """All that may get a gradient."""
        yield from (tensor for tensor in self._given if tensor.requires_grad)
        yield from (p for p in self.cell.parameters() if p.requires_grad)

    def numbers(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Made-up numbers of both signs."""
        found = torch.randn(shape, generator=self._generator, dtype=torch.float64, device="cpu")
        return found.to(self.signature.device, dtype)

    def _x(self) -> NodeInput:
        x = self._parts(self.signature.x, self.size)
        return x[""] if list(x) == [""] else x  # one tensor alone has no name

    def _shared(self) -> dict[str, Tensor]:
        return {n: self._new(shape, d, wanted) for n, shape, d, wanted in self.signature.shared}

    def _states(self, num_rows: int) -> dict[str, Tensor]:
        """[num_rows, width] what earlier passes computed."""
        dtype = self.signature.dtype
        return {n: self._new((num_rows, w), dtype, grad) for n, (w, grad) in self._fields.items()}

    def _edges(self, tried: int, count: int) -> dict[str, Any]:
        """The columns of `count` edges, or the table of the type `tried` and its rows."""
        has_tables, device = self.signature.has_tables, self.signature.device
        found = self._parts(self.signature.edge, NUM_KINDS if has_tables else count)
        return {
            "edge": {} if has_tables else found,
            "tables": {tried: found} if has_tables else {},
            "kind": RowIndex(torch.arange(count, device=device) % NUM_KINDS)
            if has_tables
            else None,
        }

    def _parts(self, parts: Sequence[Part], count: int) -> dict[str, Tensor]:
        """[count, ...] of each part."""
        return {name: self._new((count, *s), dtype, grad) for name, s, dtype, grad in parts}

    def _new(self, shape: Sequence[int], dtype: torch.dtype, wanted: bool) -> Tensor:
        if not dtype.is_floating_point:
            return torch.zeros(shape, dtype=dtype, device=self.signature.device)
        made = self.numbers(shape, dtype).requires_grad_(wanted and self.signature.differentiate)
        self._given.append(made)
        return made


_SOURCE, _TRIED = 0, 1


class PassTrial(Trial):
    """A pass up or down over one group of nodes, which read nodes without a cell."""

    in_rounds = False

    def _make(self, most: int) -> None:
        plan = _plan(self.cell.arity, self.size, most, self.signature.device)
        self._inputs = PassInputs(
            plan=plan,
            cells={_TRIED: self.cell},
            x={_TRIED: self._x()},
            given=self._states(plan.num_rows + 1),
            absent={},
            shared=self._shared(),
            kernel=NATIVE,
            readable={_TRIED: self.signature.readable},
            relations={name: {} for name in self.signature.relations},
            **self._edges(_TRIED, len(plan.edge)),
        )

    def run_compiled(self, compiled: CompiledCell) -> list[Tensor]:
        return self._in_order(run_compiled(self._inputs, {_TRIED: compiled}))

    def run_eager(self) -> list[Tensor]:
        return self._in_order(run_eager(self._inputs))

    def run_alone(self) -> list[Tensor]:
        plan = _plan(self.cell.arity, self.size, self._most, self.signature.device, alone=True)
        return self._in_order(run_eager(replace(self._inputs, plan=plan)))

    def _in_order(self, states: Mapping[str, Tensor]) -> list[Tensor]:
        return [states[name] for name in self._inputs.fields]


@cache
def _plan(
    arity: int | None, size: int, most: int, device: torch.device, alone: bool = False
) -> PassSchedule:
    """Nodes that have so many children, or any number up to `most`, among four without a cell.

    They are one group, or each is one of its own; the rows are the same.
    """
    rng, num_sources = np.random.default_rng(size + most), 4
    counts = rng.integers(0, most + 1, size) if arity is None else np.full(size, arity)
    ptr = np.concatenate([np.zeros(num_sources + 1, np.int64), counts.cumsum()])
    child = rng.integers(-1 if arity else 0, num_sources, int(counts.sum()))
    op_type = np.array([_SOURCE] * num_sources + [_TRIED] * size)
    step = op_type.cumsum() if alone else op_type.copy()
    inputs = CellInputs(op_type, None, np.array([num_sources, size]))
    plan = plan_levels(inputs, Edges.from_csr(ptr, child), step)
    return plan.map_tensors(lambda tensor: tensor.to(device))


class RoundTrial(Trial):
    """All nodes are of one type; each reads some others, or itself."""

    in_rounds = True

    def _make(self, most: int) -> None:
        schedule = _schedule(self.size, most, self.signature.relations)
        schedule = schedule.to(self.signature.device)
        (plan,), (unrolled,) = schedule.passes, schedule.unrolled
        assert unrolled is not None
        states = {name: {0: rows} for name, rows in self._states(self.size).items()}
        absent = {n: s[0].new_zeros(1, s[0].shape[1]) for n, s in states.items()}
        self._inputs = RoundsInputs(
            unrolled=unrolled,
            state=TypedFields(plan, states, absent),
            initial=states,
            read_types=frozenset({(0, 0)}),
            absent=absent,
            cells={1: self.cell},  # of type 0 in the first round
            x={1: self._x()},
            shared=self._shared(),
            kernel=NATIVE,
            readable={1: self.signature.readable},
            relations={name: {} for name in self.signature.relations},
            **self._edges(1, len(plan.edge)),
        )

    def run_compiled(self, compiled: CompiledCell) -> list[Tensor]:
        return self._own(run_compiled_rounds(self._inputs, {1: compiled}))

    def run_eager(self) -> list[Tensor]:
        return self._own(run_eager_rounds(self._inputs, use_native=False))

    def run_alone(self) -> list[Tensor]:
        """A round of nodes without neighbours."""
        assert not len(self._inputs.unrolled.plan.edge)
        schedule = _schedule(1, 0, self.signature.relations).to(self.signature.device)
        (plan,), (unrolled,) = schedule.passes, schedule.unrolled
        assert unrolled is not None
        found = []
        for row in range(self.size):
            one, x = slice(row, row + 1), self._inputs.x[1]
            states = {name: {0: own[0][one]} for name, own in self._inputs.initial.items()}
            inputs = replace(
                self._inputs,
                unrolled=unrolled,
                state=TypedFields(plan, states, self._inputs.absent),
                initial=states,
                x={1: x[one] if isinstance(x, Tensor) else {n: v[one] for n, v in x.items()}},
            )
            found.append(self._own(run_eager_rounds(inputs, use_native=False)))
        return [torch.cat(rows) for rows in zip(*found, strict=True)]

    def _own(self, found: TypedFields) -> list[Tensor]:
        return [found.part(name, 0) for name in self.cell.fields]


@cache
def _schedule(size: int, most: int, relations: tuple[str, ...]) -> Schedule:
    """A round of a graph with a limited number of neighbours along each relation."""
    schema = Schema((NodeType("node"),), relations=tuple(map(EdgeType, relations)))
    rng, builder = np.random.default_rng(size + most), GraphBuilder(schema)
    nodes = [builder.node("node") for _ in range(size)]
    for relation in relations:
        target = [node for node in nodes for _ in range(rng.integers(0, most + 1))]
        builder.edges(relation, rng.integers(0, size, len(target)).tolist(), target)
    builder.output(nodes[-1])
    builder.finish()
    return build_schedule(builder.build(), [Rounds(relations, 1)])
