"""CompiledBackward: backward of a pass of compiled cells, and the gradients of their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphfold.batching.compiler.program import ALL_EDGES, ROWS, Key, Named
from graphfold.batching.engine.compiled.compiled_pass import CompiledPass


class CompiledBackward:
    """Backward of one pass.

    Args:
        run: the pass.
        states: what forward gave.
        tensors: what cells read; None for what backward does not.
        kept: what forward kept.
        grads: the cotangents of the states.
    """

    def __init__(
        self,
        run: CompiledPass,
        states: Sequence[Tensor],
        tensors: Sequence[Tensor | None],
        kept: Mapping[Named, Tensor],
        grads: Sequence[Tensor | None],
    ) -> None:
        self._pass, self._plan = run, run.plan
        self._memory = run.memory(tensors, is_backward=True)
        run.place_states(self._memory, [self._memory.take(own, "a state") for own in states])
        for (op_type, key), tensor in kept.items():
            own = self._memory.shared if op_type is None else self._memory.own[op_type]
            own[key] = self._memory.take(tensor, key)
        run.place_upstream(self._memory, grads)

    def run(self, needs: Sequence[bool]) -> list[Tensor | None]:
        """The gradient of each tensor that needs one."""
        self._reserve()
        cells = self._pass.cells
        programs = {t: cell.backward for t, cell in cells.items() if cell.backward is not None}
        self._memory.run(programs)
        found = self._constants()
        return [
            self._gradient(named, shape, found) if need else None
            for named, shape, need in zip(self._pass.names, self._pass.shapes, needs, strict=True)
        ]

    def _reserve(self) -> None:
        """Memory for all that backward writes."""
        memory, run = self._memory, self._pass
        writers: dict[Key, list[int]] = {}  # of what all types share
        for op_type, cell in run.cells.items():
            for key, (space, size) in cell.buffers.items():
                if space in (ROWS, ALL_EDGES):
                    if key not in memory.shared:
                        memory.shared[key] = run.new(op_type, space, size)
                        if space == ROWS and run.first_row:
                            memory.first_row[None][key] = run.first_row
                    writers.setdefault(key, []).append(op_type)
                else:
                    memory.own[op_type][key] = run.new(op_type, space, size)
            own = memory.own[op_type]
            for number, size in cell.accumulated.items():
                own["accumulated", str(number)] = run.zeros(memory.count_sums(op_type), size)
            for name in cell.tables:
                size = own["table", name].numel()
                own["table_grad", name] = run.zeros(memory.count_sums(op_type), size)
                own["table_size", name] = torch.tensor([size], device="cpu")
        for (kind, name), op_types in writers.items():
            both = {("edge_grad", name), ("node_grad", name)} <= writers.keys()
            if both or not self._is_filled(kind, op_types):
                memory.shared[kind, name].zero_()

    def _is_filled(self, kind: str, op_types: Sequence[int]) -> bool:
        """True if some types write all that is read of a kind of gradient."""
        plan = self._plan.host  # a GPU would sort its rows to say how many follow
        if kind == "previous_grad" and plan.following is not None:
            return sum(plan.types[t].size for t in op_types) == len(plan.following[1])
        if kind in ("edge_grad", "node_grad", "weighted_grad"):
            return sum(plan.types[t].num_edges for t in op_types) == len(plan.child_row)
        return False

    def _constants(self) -> dict[Named, Tensor]:
        """The gradients of constants, such as weights."""
        found: dict[Named, Tensor] = {}
        for op_type, cell in self._pass.cells.items():
            own = self._memory.own[op_type]

            def add(number: int, grad: Tensor, op_type: int = op_type) -> None:
                named = op_type, ("constant", str(number))
                found[named] = found[named] + grad if named in found else grad

            for product in cell.products:
                weight, bias = self._memory.sum_products(op_type, product)
                add(product.weight, weight)
                if product.bias is not None and bias is not None:
                    add(product.bias, bias)
            for number in cell.accumulated:
                sums = own["accumulated", str(number)].sum(0)
                add(number, sums.view(own["constant", str(number)].shape))
        return found

    def _gradient(
        self, named: Named, shape: torch.Size, constants: Mapping[Named, Tensor]
    ) -> Tensor | None:
        op_type, (kind, name) = named
        if kind != "constant" and (op_type is None or op_type not in self._pass.cells):
            return self._pass.gradient(named, shape, self._memory)
        own = {} if op_type is None else self._memory.own[op_type]
        if kind == "constant":
            found = constants.get(named)
        elif kind == "table":
            sums = own.get(("table_grad", name))
            found = None if sums is None else sums.sum(0)
        else:
            found = own.get(("x_grad", name))
        if found is None:  # nodes read it, but no cotangent depends on it
            return self._pass.zeros(*shape)
        return found if found.shape == shape else found.view(shape)
