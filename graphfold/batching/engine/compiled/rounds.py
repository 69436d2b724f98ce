"""Rounds of message passing as a pass of compiled cells, over nodes (v, t) that read (u, t - 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput, makes_tables
from graphfold.batching.engine.compiled.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.memory import Memory
from graphfold.batching.engine.compiled.run import CompiledPass, Named, run_pass
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.engine.round_inputs import RoundInputs
from graphfold.batching.engine.rounds import RoundsRun, x_rows
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import select_rows
from graphfold.batching.kernels.segment_kernels import Kernel
from graphfold.batching.scheduling.unrolled import UnrolledRounds


@dataclass(frozen=True, eq=False)
class RoundsInputs:
    """What all rounds are given; op types are those of `UnrolledRounds`."""

    unrolled: UnrolledRounds
    state: TypedFields  # before the first round
    begun: frozenset[str]  # the fields of it in which equal rows are one
    cells: Mapping[int, Cell]
    x: Mapping[int, NodeInput]  # in the order of rows
    edge: Mapping[str, Tensor]  # column -> [num_edges, ...] in the order of the relation
    tables: Mapping[int, Mapping[str, Tensor]]  # see `Cell.before_edges`
    kind: Tensor | None  # [num_edges] the row of a table, in the order of the relation
    shared: Mapping[str, Tensor]
    kernel: Kernel

    @staticmethod
    def of(
        inputs: RoundInputs,
        begun: RoundsRun,
        turns: Sequence[Mapping[int, Cell]],
        x: Sequence[Mapping[int, NodeInput]],
    ) -> RoundsInputs:
        """Rounds from what each of them is given.

        Args:
            inputs: what all of them are.
            begun: they, before the first.
            turns: op type -> cell, of each round.
            x: op type -> what `Cell.before` returned, of each round.
        """
        plan, num_types, state = inputs.plan, len(inputs.plan.type_order), begun.state
        unrolled = plan.unrolled(len(turns))
        cells, own_x, tables = {}, {}, {}
        for number, (by_type, given) in enumerate(zip(turns, x, strict=True), start=1):
            for op_type, cell in by_type.items():
                if op_type not in state.groups:
                    continue
                code = op_type + number * num_types
                kept = unrolled.kept(number, state.groups[op_type])
                cells[code] = cell
                own_x[code] = x_rows(given[op_type], plan, op_type, kept)
                if makes_tables(cell):
                    tables[code] = cell.before_edges(inputs.edge_kinds.columns)
        return RoundsInputs(
            unrolled=unrolled,
            state=state,
            begun=begun.begun,
            cells=cells,
            x=own_x,
            edge=inputs.edge,
            tables=tables,
            kind=inputs.edge_kinds.kind if tables else None,
            shared=inputs.shared,
            kernel=inputs.kernel,
        )

    @property
    def num_types(self) -> int:
        """How many types the schema has."""
        return len(self.unrolled.first[0])

    @cached_property
    def read(self) -> dict[str, Tensor]:
        """Field -> its rows, of those that this pass does not write."""
        written = {name for cell in self.cells.values() for name in cell.fields}
        return {
            name: self.initial(name, *parts)
            for name, parts in self.state.parts.items()
            if name not in written and len(parts) == 1
        }

    def initial(self, field: str, op_type: int) -> Tensor:
        """[size, width] a field before the first round, in the rows that there are then."""
        rows = self.state.parts[field][op_type]
        if field in self.begun:
            return rows
        kept = self.unrolled.kept(0, self.state.groups[op_type])
        return rows if kept is None else select_rows(rows, kept)

    @cached_property
    def as_pass(self) -> PassInputs:
        """The same as one pass."""
        plan = self.unrolled.plan
        return PassInputs(
            plan=plan,
            cells=self.cells,
            x=self.x,
            given=self.read,
            absent={},
            edge={
                name: column.index_select(0, plan.edge)
                for name, column in self.edge.items()
                if column.is_floating_point()
            },
            shared=self.shared,
            kernel=self.kernel,
            tables=self.tables,
            kind=None if self.kind is None else self.kind.index_select(0, plan.edge),
        )


def run_compiled_rounds(inputs: RoundsInputs, cells: Mapping[int, CompiledCell]) -> TypedFields:
    """Runs all rounds.

    Args:
        inputs: the rounds.
        cells: op type -> the compiled cell.
    """
    run = _CompiledRounds(inputs, inputs.as_pass, cells)
    found = dict(zip(run.outputs, run_pass(run), strict=True))
    parts = {name: dict(own) for name, own in inputs.state.parts.items()}
    for (name, op_type), rows in found.items():
        spread = inputs.unrolled.spread(-1, inputs.state.groups[op_type])
        parts[name][op_type] = rows if spread is None else select_rows(rows, spread)
    return TypedFields(inputs.state.plan, parts, inputs.state.absent)


class _CompiledRounds(CompiledPass):
    """All rounds over one batch: the state before the first is given, that of the last handed out.

    Attributes:
        outputs: (field, op type) of what is handed out.
    """

    def __init__(
        self, inputs: RoundsInputs, as_pass: PassInputs, cells: Mapping[int, CompiledCell]
    ) -> None:
        super().__init__(as_pass, cells)
        # What is not kept here may be freed before backward: x, and the states before.
        self._unrolled, self._num_types = inputs.unrolled, inputs.num_types
        self._read = {name: next(iter(inputs.state.parts[name])) for name in inputs.read}
        unrolled = inputs.unrolled
        types = sorted({code % inputs.num_types for code in cells})
        last = len(unrolled.first) - 1
        self.first_row = unrolled.first[0][types[0]]
        self.num_rows = unrolled.first[last][types[-1]] + unrolled.size[last][types[-1]]
        self.num_rows -= self.first_row
        initial: dict[Named, Tensor] = {}
        for name in self.fields:
            for op_type in inputs.state.parts[name]:
                initial[op_type, ("initial", name)] = inputs.initial(name, op_type)
        self.names = (*self.names, *initial)
        self.tensors = (*self.tensors, *initial.values())
        self.outputs = [
            (name, code % inputs.num_types)
            for code, cell in as_pass.cells.items()
            if code // inputs.num_types == last
            for name in cell.fields
        ]

    def is_read_back(self, named: Named) -> bool:
        return named[1][0] != "initial" and super().is_read_back(named)

    def memory(self, tensors: Sequence[Tensor], is_backward: bool = False) -> Memory:
        memory = super().memory(tensors, is_backward)
        memory.shared["previous_row", ""] = self._unrolled.previous_row
        return memory

    def place_states(self, memory: Memory, states: Sequence[Tensor]) -> None:
        super().place_states(memory, states)
        for name, op_type in self._read.items():
            memory.first_row["read", name] = self._unrolled.first[0][op_type]

    def child_count(self) -> Tensor:
        return self._unrolled.child_count

    def new_state(self, name: str, width: int, memory: Memory) -> Tensor:
        state = torch.empty(self.num_rows, width, dtype=self.dtype)
        for op_type, own in memory.own.items():
            if ("initial", name) in own:
                state[self._rows(0, op_type)] = own["initial", name]
        return state

    def results(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        by_name = dict(zip(self.fields, states, strict=True))
        last = len(self._unrolled.first) - 1
        return [by_name[name][self._rows(last, op_type)] for name, op_type in self.outputs]

    def place_outside(self, memory: Memory, grads: Sequence[Tensor | None]) -> None:
        last = len(self._unrolled.first) - 1
        for (name, op_type), grad in zip(self.outputs, grads, strict=True):
            if grad is not None:
                dense = grad.to_dense() if grad.is_sparse else grad
                own = memory.own[op_type + last * self._num_types]
                own["outside", name] = dense.to(self.dtype).contiguous()
                # Rows are counted from the first of the pass, what is asked from the first here.
                first = self._unrolled.first[last][op_type]
                code = op_type + last * self._num_types
                memory.first_row[code, ("outside", name)] = first

    def gradient(self, named: Named, tensor: Tensor, memory: Memory) -> Tensor:
        op_type, (kind, name) = named
        if kind == "initial" and op_type is not None:
            first = self._unrolled.first[0][op_type]
            return memory.pull(name, first, tensor.new_empty(tensor.shape))
        if kind == "given":
            first = self._unrolled.first[0][self._read[name]]
            return memory.pull(name, first, tensor.new_empty(tensor.shape))
        return super().gradient(named, tensor, memory)

    def _rows(self, number: int, op_type: int) -> slice:
        """Where the rows of a type in a round lie in a state."""
        start = self._unrolled.first[number][op_type] - self.first_row
        return slice(start, start + self._unrolled.size[number][op_type])
