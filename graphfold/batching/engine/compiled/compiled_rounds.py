"""Rounds of message passing as a pass of compiled cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphfold.batching.compiler.backend import Memory
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.program import Named
from graphfold.batching.engine.compiled.compiled_pass import CompiledPass
from graphfold.batching.engine.compiled.compiled_run import run_pass
from graphfold.batching.engine.compiled.frozen_weights import FrozenWeights
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.engine.rounds import RoundsInputs
from graphfold.batching.engine.typed_fields import TypedFields


def run_compiled_rounds(
    inputs: RoundsInputs, cells: Mapping[int, CompiledCell], frozen: FrozenWeights | None = None
) -> TypedFields:
    """Runs all rounds.

    Args:
        inputs: the rounds.
        cells: op type -> the compiled cell.
        frozen: what is kept of the cells between calls, if anything is.
    """
    run = _CompiledRounds(inputs, inputs.as_pass, cells, frozen)
    return inputs.result(dict(zip(run.outputs, run_pass(run), strict=True)))


class _CompiledRounds(CompiledPass):
    """All rounds over one batch: takes the state before the first, returns that after the last.

    Attributes:
        outputs: (field, op type) of what is handed out.
    """

    def __init__(
        self,
        inputs: RoundsInputs,
        as_pass: PassInputs,
        cells: Mapping[int, CompiledCell],
        frozen: FrozenWeights | None,
    ) -> None:
        super().__init__(as_pass, cells, frozen)
        # What is not kept here may be freed before backward: x, and the states before.
        self._unrolled = unrolled = inputs.unrolled
        # The first row of what is given; of no rows at all any number will do.
        self._given_at = {
            name: next((unrolled.rows(0, op_type).start for op_type in inputs.initial[name]), 0)
            for name in inputs.given
        }
        with_cell = {unrolled.round_of(code)[1] for code in cells}
        # Rows pull their gradients from all that read them, nodes without a cell among these.
        readers = {reader for reader, read in inputs.read_types if read in with_cell}
        types = sorted(with_cell | readers)
        last = unrolled.num_rounds
        self.first_row = unrolled.rows(0, types[0]).start
        self.num_rows = unrolled.rows(last, types[-1]).stop - self.first_row
        initial: dict[Named, Tensor] = {}
        for name in self.fields:
            for op_type, rows in inputs.initial[name].items():
                code = unrolled.code(1, op_type)
                if code in cells and name in as_pass.cells[code].fields:
                    initial[op_type, ("initial", name)] = rows
        self._name({**dict(zip(self.names, self.tensors, strict=True)), **initial})
        self.outputs = [
            (name, unrolled.round_of(code)[1])
            for code, cell in as_pass.cells.items()
            if unrolled.round_of(code)[0] == last
            for name in cell.fields
        ]

    def is_read_back(self, named: Named) -> bool:
        return named[1][0] != "initial" and super().is_read_back(named)

    def place_states(self, memory: Memory, states: Sequence[Tensor]) -> None:
        super().place_states(memory, states)
        for name, row in self._given_at.items():
            memory.first_row[None]["read", name] = row

    def new_state(self, name: str, width: int, memory: Memory) -> Tensor:
        state = self.empty(self.num_rows, width)
        for op_type, own in memory.own.items():
            if ("initial", name) in own:
                state[self._rows(0, op_type)] = own["initial", name]
        return state

    def results(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        by_name = dict(zip(self.fields, states, strict=True))
        last = self._unrolled.num_rounds
        return [by_name[name][self._rows(last, op_type)] for name, op_type in self.outputs]

    def place_upstream(self, memory: Memory, grads: Sequence[Tensor | None]) -> None:
        unrolled = self._unrolled
        for (name, op_type), grad in zip(self.outputs, grads, strict=True):
            if grad is not None:
                dense = grad.to_dense() if grad.is_sparse else grad
                code = unrolled.code(unrolled.num_rounds, op_type)
                dense = memory.take(dense.to(self.dtype), ("the gradient of", name))
                memory.own[code]["upstream", name] = dense
                # Rows are counted from the first of the pass, those of results from the first here.
                first = unrolled.plan.types[code].start
                memory.first_row[code]["upstream", name] = first

    def gradient(self, named: Named, shape: torch.Size, memory: Memory) -> Tensor | None:
        op_type, (kind, name) = named
        if kind == "initial" and op_type is not None:
            first = self._unrolled.rows(0, op_type).start
            return memory.pull(name, first, self.empty(*shape))
        if kind == "given":
            return memory.pull(name, self._given_at[name], self.empty(*shape))
        return super().gradient(named, shape, memory)

    def _rows(self, number: int, op_type: int) -> slice:
        """The rows of a type in a round, as a slice of a state."""
        rows = self._unrolled.rows(number, op_type)
        return slice(rows.start - self.first_row, rows.stop - self.first_row)
