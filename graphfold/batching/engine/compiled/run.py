"""A pass of compiled cells: one native call forward, one backward, one node of the autograd graph.

Here all that native code reads and writes gets its memory. What is computed is said by the programs
of the cells; in which order, by the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.engine.compiled.backward import CompiledBackward
from graphfold.batching.engine.compiled.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.memory import Memory
from graphfold.batching.engine.compiled.program import (
    ALL_EDGES,
    ROWS,
    TYPE_EDGES,
    TYPE_ROWS,
    Key,
)
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.native.library import load
from graphfold.errors import EngineError

#: Op type, or None for all types, and what it is there.
Named: TypeAlias = tuple[int | None, Key]


def run_compiled(inputs: PassInputs, cells: Mapping[int, CompiledCell]) -> dict[str, Tensor]:
    """Runs one pass.

    Args:
        inputs: the pass.
        cells: op type -> the compiled cell.

    Returns:
        field -> [num_rows + 1, width], rows in plan order; row 0 is what absent children read.
    """
    run = CompiledPass(inputs, cells)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in run.tensors):
        states = _Pass.apply(run, *run.tensors)  # type: ignore[no-untyped-call]
    else:
        with torch.no_grad():
            states, _ = run.forward(run.tensors)
    return {**inputs.given, **dict(zip(inputs.fields, states, strict=True))}


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: CompiledPass, *tensors: Tensor) -> tuple[Tensor, ...]:
        states, kept = run.forward(tensors)
        # What backward reads is kept by autograd, which sees changes in place and frees it in time.
        ctx.save_for_backward(*states, *tensors, *kept.values())
        ctx.run, ctx.kept = run, list(kept)
        ctx.set_materialize_grads(False)
        run.tensors = ()
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise EngineError(
                "compiled cells cannot be differentiated twice (create_graph=True). "
                "Use engine=autograd."
            )
        run: CompiledPass = ctx.run
        saved, count = ctx.saved_tensors, len(run.fields) + len(run.names)
        states = saved[: len(run.fields)]
        kept = dict(zip(ctx.kept, saved[count:], strict=True))
        backward = CompiledBackward(run, states, saved[len(run.fields) : count], kept, grads)
        return None, *backward.run(ctx.needs_input_grad[1:])


class CompiledPass:
    """One pass over one batch.

    Args:
        inputs: the pass.
        cells: op type -> the compiled cell.

    Attributes:
        names: what each of `tensors` is.
        tensors: all that cells read.
    """

    def __init__(self, inputs: PassInputs, cells: Mapping[int, CompiledCell]) -> None:
        self.plan, self.cells, self.fields = inputs.plan, cells, inputs.fields
        self.lacking, self.carried = inputs.lacking, inputs.carried
        self.dtype = inputs.dtype(next(iter(inputs.fields)))
        self.library, self.num_threads = load(self.dtype), torch.get_num_threads()
        named: dict[Named, Tensor] = {}
        for op_type, cell in cells.items():
            lowered = cell.lowered
            own = [tensor.find(inputs.cells[op_type]) for tensor in lowered.tensors]
            own += [inputs.shared[name] for name in lowered.shared]
            for number, constant in enumerate(lowered.fixed(*own)):
                named[op_type, ("constant", str(number))] = constant
            for name, value in parts(inputs.x[op_type]):
                if name in cell.reads:
                    named[op_type, ("x", name)] = value
        for name, value in inputs.edge.items():
            named[None, ("edge", name)] = value
        for name, value in inputs.given.items():
            named[None, ("given", name)] = value
        for name, value in inputs.absent.items():
            named[None, ("absent", name)] = value
        self.names, self.tensors = tuple(named), tuple(named.values())

    def forward(
        self, tensors: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], dict[Named, Tensor]]:
        """The state of each field, and what backward needs beside it."""
        memory = self.memory(tensors)
        states = [self._new_state(name, width, memory) for name, width in self.fields.items()]
        self.place_states(memory, states)
        kept: dict[Named, Tensor] = {}
        for op_type, cell in self.cells.items():
            for key, (space, size) in cell.buffers.items():
                if key[0] == "saved":
                    kept[op_type, key] = self.new(op_type, space, size)
                    memory.own[op_type][key] = kept[op_type, key]
        memory.run({t: cell.forward for t, cell in self.cells.items()}, is_backward=False)
        return tuple(states), kept

    def memory(self, tensors: Sequence[Tensor]) -> Memory:
        """The memory of one direction, with what cells read."""
        memory = Memory(self.plan, self.library, self.num_threads)
        memory.own = {op_type: {} for op_type in self.cells}
        for (op_type, key), tensor in zip(self.names, tensors, strict=True):
            if op_type is None:
                memory.shared[key] = tensor.contiguous()
            elif key[0] == "x" or key in self.cells[op_type].read_constants:
                memory.own[op_type][key] = tensor.contiguous()
            else:  # a weight: packing reads it as it lies
                memory.own[op_type][key] = tensor
        if any(cell.reads_child_count for cell in self.cells.values()):
            memory.shared["child_count", ""] = self.plan.child_count(self.plan.child_row)
        return memory

    def place_states(self, memory: Memory, states: Sequence[Tensor]) -> None:
        """Names what cells write, and what they read of children."""
        for (kind, name), tensor in list(memory.shared.items()):
            if kind == "given":
                memory.shared["read", name] = tensor
        for name, state in zip(self.fields, states, strict=True):
            memory.shared["state", name] = memory.shared["read", name] = state

    def _new_state(self, name: str, width: int, memory: Memory) -> Tensor:
        """Memory for a field, with the rows that no cell computes."""
        state = torch.empty(self.plan.num_rows + 1, width, dtype=self.dtype)
        absent = memory.shared.get(("absent", name))
        if absent is None:
            state[0].zero_()
        else:
            state[0] = absent
        if any(name in names for names in (*self.lacking.values(), *self.carried.values())):
            for group in self.plan.groups:
                if name in self.lacking[group.op_type]:
                    state[group.rows] = 0
                elif name in self.carried[group.op_type]:
                    state[group.rows] = memory.shared["given", name][group.rows]
        return state

    def new(self, op_type: int, space: int, size: int) -> Tensor:
        """Memory for rows of a type, or of all types."""
        plan = self.plan
        if space == ROWS:
            count = plan.num_rows + 1
        elif space == ALL_EDGES:
            count = plan.child_row.shape[0]
        elif space == TYPE_EDGES:
            count = plan.count_edges(op_type)
        else:
            assert space == TYPE_ROWS
            count = plan.count_rows(op_type)
        return torch.empty(count, size, dtype=self.dtype)
