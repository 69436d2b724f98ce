"""CompiledPass: all that programs read and write in a pass over a batch gets its memory here.

What is computed is said by the programs of the cells; in which order, by the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import memset
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.compiler.backend import PULLED, Memory
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.program import (
    ALL_EDGES,
    ONE,
    ROWS,
    TYPE_EDGES,
    TYPE_ROWS,
    Named,
)
from graphfold.batching.engine.compiled.frozen_weights import FrozenWeights
from graphfold.batching.engine.pass_inputs import PassInputs, parts

#: The integers of a plan that cells may read -> its attribute.
INTEGERS = {
    "child_count": "child_counts",
    "is_self": "self_loops",
    "position": "child_positions",
    "relation": "relation",
}


class CompiledPass:
    """One pass over one batch.

    Args:
        inputs: the pass.
        cells: op type -> the compiled cell.
        frozen: what is kept of the cells between calls, if anything is.

    Attributes:
        cells: those of the types that have nodes.
        names: what each of `tensors` is.
        tensors: all that cells read.
        shapes: of these tensors.
        first_row: the first row that states have.
        num_rows: how many rows they have.
    """

    def __init__(
        self,
        inputs: PassInputs,
        cells: Mapping[int, CompiledCell],
        frozen: FrozenWeights | None = None,
    ) -> None:
        self._frozen, self._packed = frozen, dict[int, dict[Any, Tensor]]()
        self.plan, self.fields, self._given = inputs.plan, inputs.fields, tuple(inputs.given)
        # What belongs to types without nodes takes no part, so that its gradient is None.
        self.backend = next(iter(cells.values())).backend  # the same for all
        self.cells = cells = {t: cell for t, cell in cells.items() if t in self.plan.types}
        self.without_cell = inputs.without_cell
        self.dtype = inputs.dtype(next(iter(inputs.fields)))
        self.device = inputs.device
        self.first_row, self.num_rows = 0, inputs.plan.num_rows + 1
        self.kind, self._called = inputs.kind, inputs.cells
        named: dict[Named, Tensor] = {}
        for op_type, cell in cells.items():
            self._name_own(named, inputs, op_type, cell)
        for name, value in inputs.edge.items():
            named[None, ("edge", name)] = value
        for name, value in inputs.given.items():
            named[None, ("given", name)] = value
        for name, value in inputs.absent.items():
            if name in inputs.fields:
                named[None, ("absent", name)] = value
        self._name(named)

    def _name(self, named: dict[Named, Tensor]) -> None:
        self.names, self.tensors = tuple(named), tuple(named.values())
        self.shapes = [tensor.shape for tensor in self.tensors]

    def _name_own(
        self,
        named: dict[Named, Tensor],
        inputs: PassInputs,
        op_type: int,
        cell: CompiledCell,
    ) -> None:
        """Names what only the nodes of one type read."""
        own = [tensor.find(inputs.cells[op_type]) for tensor in cell.lowered.tensors]
        own += [inputs.shared[name] for name in cell.lowered.shared]
        for number, constant in enumerate(self._constants(op_type, cell, own)):
            named[op_type, ("constant", str(number))] = constant
        for name, value in parts(inputs.x[op_type]):
            if name in cell.reads:
                named[op_type, ("x", name)] = value
        for name, value in inputs.tables.get(op_type, {}).items():
            if name in cell.reads_tables:
                named[op_type, ("table", name)] = value

    def _constants(
        self, op_type: int, cell: CompiledCell, tensors: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The constants of a cell: all that depends on its parameters alone."""
        kept = None if self._frozen is None else self._frozen.of(cell, tensors)
        if kept is None:
            return cell.lowered.fixed(*tensors)
        self._packed[op_type] = kept.packed
        return kept.constants

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], dict[Named, Tensor]]:
        """The state of each field, and what backward needs beside it."""
        memory = self.memory(tensors, is_backward=False)
        states = [self.new_state(name, width, memory) for name, width in self.fields.items()]
        self.place_states(memory, states)
        kept: dict[Named, Tensor] = {}
        for op_type, cell in self.cells.items():
            for key, (space, size) in cell.kept.items():
                if space != ALL_EDGES:
                    kept[op_type, key] = self.new(op_type, space, size)
                    memory.own[op_type][key] = kept[op_type, key]
                elif key not in memory.shared:  # cells of other types may leave theirs out
                    kept[None, key] = self.new(op_type, space, size).zero_()
                    memory.shared[key] = kept[None, key]
        memory.run({t: cell.forward for t, cell in self.cells.items()})
        for op_type, cell in self.cells.items():
            if cell.lowered.counters or cell.lowered.running:
                self._update(op_type, cell, memory)
        return states, kept

    def _update(self, op_type: int, cell: CompiledCell, memory: Memory) -> None:
        """Lets a batch count in running statistics."""
        own = memory.own[op_type]
        for running in cell.lowered.running:
            mean, variance = (own["group", n][0] for n in (running.mean, running.variance))
            num_rows: int | Tensor = self.plan.count_rows(op_type)
            if running.share is not None:
                num_rows = num_rows * own["group", running.share][0]
            running.update(self._called[op_type], mean, variance, num_rows)
        for counter, count in cell.lowered.counters:
            counter.find(self._called[op_type]).add_(count)

    def results(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        """The part of the states that is handed out."""
        return states

    def is_read_back(self, named: Named) -> bool:
        """True if backward reads the numbers of one of `tensors`, and not its shape alone."""
        op_type, key = named
        return op_type is None or key[0] != "x" or self.cells[op_type].reads_back(key)

    def memory(self, tensors: Sequence[Tensor | None], is_backward: bool) -> Memory:
        """The memory of one direction, with what cells read there; None for what they do not."""
        memory = self.backend.memory(self.plan, self.dtype, is_backward)
        memory.own = {op_type: {} for op_type in self.cells}
        memory.packed = self._packed
        for named, tensor in zip(self.names, tensors, strict=True):
            if tensor is None:
                continue
            op_type, key = named
            own = memory.shared if op_type is None else memory.own.setdefault(op_type, {})
            cell = None if op_type is None else self.cells.get(op_type)
            is_read = cell is None or key[0] != "constant" or key in cell.read_constants
            # Programs read no other dtype, and pack weights as these lie.
            is_of_pass = tensor.dtype is self.dtype
            own[key] = memory.take(tensor, key, by_strides=not is_read) if is_of_pass else tensor
        for name, integers in self._integers().items():
            size = self.plan.num_rows + 1 if name == "previous_row" else self.plan.num_edges
            memory.shared[name, ""] = memory.take(integers, name, size)
        return memory

    def _integers(self) -> dict[str, Tensor]:
        """The integers that programs read of the plan, by name."""
        plan, found = self.plan, {"child_row": self.plan.child_row}
        for cell in self.cells.values():
            for name in cell.reads_integers:
                found[name] = getattr(plan, INTEGERS[name])
        if plan.previous_row is not None:
            found["previous_row"] = plan.previous_row
        if self.kind is not None:
            found["kind"] = self.kind.rows
        return found

    def place_states(self, memory: Memory, states: Sequence[Tensor]) -> None:
        """Names what cells write, and what they read of children."""
        for name in self._given:
            memory.shared["read", name] = memory.shared["given", name]
        for name, state in zip(self.fields, states, strict=True):
            for key in (("state", name), ("read", name)):
                memory.shared[key] = state
                if self.first_row:
                    memory.first_row[None][key] = self.first_row

    def new_state(self, name: str, width: int, memory: Memory) -> Tensor:
        """Memory for a field, with the rows that no cell computes."""
        state = self.empty(self.num_rows, width)
        absent = memory.shared.get(("absent", name))
        if absent is not None:
            state[0] = absent
        elif state.is_cpu:
            memset(state.data_ptr(), 0, width * self.dtype.itemsize)  # torch would take 10 us
        else:
            state[0].zero_()
        if name in self.without_cell:
            given = memory.shared.get(("given", name))
            for op_type in self.without_cell[name]:
                rows = self.plan.types[op_type].rows
                state[rows] = 0 if given is None else given[rows]
        return state

    def new(self, op_type: int, space: int, size: int) -> Tensor:
        """Memory for rows of a type, or of all types."""
        if space == ROWS:
            count = self.num_rows
        elif space == ALL_EDGES:
            count = self.plan.num_edges
        elif space == TYPE_EDGES:
            count = self.plan.types[op_type].num_edges
        elif space == ONE:
            count = 1
        else:
            assert space == TYPE_ROWS
            count = self.plan.types[op_type].size
        return self.empty(count, size)

    def empty(self, *shape: int) -> Tensor:
        """Memory for numbers."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def place_upstream(self, memory: Memory, grads: Sequence[Tensor | None]) -> None:
        """Names the cotangents of the results: of all rows, or of a few."""
        for name, grad in zip(self.fields, grads, strict=True):
            if grad is None:
                continue
            grad = grad if grad.dtype == self.dtype else grad.to(self.dtype)
            if grad.is_sparse:
                memory.place_sparse(name, grad)
            else:
                memory.shared["upstream", name] = memory.take(grad, ("the gradient of", name))

    def gradient(self, named: Named, shape: torch.Size, memory: Memory) -> Tensor | None:
        """The gradient of one of `tensors` that is neither a constant nor of one type alone.

        None for what no cell has read: zeros would be multiplied by what made it, which may be NaN.
        """
        _, (kind, name) = named
        if kind == "edge":
            found = memory.shared.get(("column_grad", name))
            return None if found is None else found.view(shape)
        if kind == "absent":
            total = memory.pull(name, 0, self.empty(1, *shape))
            return (total + self._upstream(memory, name, slice(0, 1)))[0]
        return self._of_given(name, shape, memory)

    def zeros(self, *shape: int) -> Tensor:
        """Memory that holds nothing, such as the gradient of what no result depends on."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _of_given(self, name: str, shape: torch.Size, memory: Memory) -> Tensor | None:
        """The gradient of a field of earlier passes; None if this one has not read it."""
        own = memory.shared.get(("given_grad", name))
        if name in self.fields:
            is_read = name in self.without_cell
        else:
            is_read = any((kind, name) in memory.shared for kind in PULLED)
        if own is None and not is_read:
            return None
        total = self.zeros(*shape) if own is None else own
        if name not in self.fields:
            return total + memory.pull(name, 0, self.empty(*shape))
        for op_type in self.without_cell.get(name, ()):
            whole = self.plan.types[op_type]
            pulled = memory.pull(name, whole.start, self.empty(whole.size, *shape[1:]))
            total[whole.rows] += pulled + self._upstream(memory, name, whole.rows)
        return total

    def _upstream(self, memory: Memory, name: str, rows: slice) -> Tensor:
        """[num_rows, width] the upstream gradients of some rows."""
        shared, count = memory.shared, rows.stop - rows.start
        if ("upstream", name) not in shared:
            return shared["state", name].new_zeros(count, shared["state", name].shape[1])
        values = shared["upstream", name]
        if ("upstream_row", name) not in shared:
            return values[rows]
        place = shared["upstream_row", name][rows]
        found = values.new_zeros(count, values.shape[1])
        found[place >= 0] = values[place[place >= 0]]
        return found
