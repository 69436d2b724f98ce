"""The fast engine: one state buffer per field, one autograd function per pass.

Forward runs the groups in order; each writes its rows of the buffers, and keeps what its own
backward needs: a small autograd graph, cut off from what came before, or a few tensors where the
cell has a program. Backward goes through the groups in reverse; a group's gradient is pulled from
those that read it. The state is never concatenated or copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.engine.aliases import aliased
from graphfold.batching.engine.cell_runner import CellRunner
from graphfold.batching.engine.differentiate import keeps_graph
from graphfold.batching.engine.gradients import Gradients
from graphfold.batching.engine.group_readers import GroupReaders
from graphfold.batching.engine.lazy_gradients import LazyGradients
from graphfold.batching.engine.lazy_parameters import Aliases, cut
from graphfold.batching.engine.pass_inputs import PassInputs, hollow, parts
from graphfold.batching.engine.programs.program_runner import ProgramRunner
from graphfold.batching.engine.programs.programs import CellPrograms, pass_key
from graphfold.batching.engine.randomness import generator_states, restore_generators
from graphfold.batching.engine.row_gradients import RowGradients
from graphfold.batching.kernels.onednn import product_kernel
from graphfold.batching.scheduling.schedule import Group
from graphfold.errors import EngineError

Runner: TypeAlias = CellRunner | ProgramRunner


def run_fast(inputs: PassInputs) -> dict[str, Tensor]:
    """Runs one pass.

    Returns:
        field -> [num_rows + 1, width], rows in plan order; row 0 is what absent children read.

    Raises:
        EngineError: if a cell reads a tensor that requires a gradient and is neither an argument
            nor a registered parameter, a module of it changes its buffers in training, or it
            changes its children's state.
        ShapeError: if a cell returns something else than its fields.
    """
    run = _Run(inputs)
    if not run.keep:
        with torch.no_grad():
            return {**inputs.given, **run.forward()}
    buffers = _Levels.apply(run, *run.tensors)  # type: ignore[no-untyped-call]
    return {**inputs.given, **dict(zip(inputs.fields, buffers, strict=True))}


class _Levels(torch.autograd.Function):
    """All groups of a pass as one node of the autograd graph outside."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: Tensor) -> tuple[Tensor, ...]:
        # The records hang on a tensor that autograd keeps, and frees when it frees its graph:
        # so a second backward needs retain_graph=True, as everywhere in torch.
        keeper = torch.empty(0)
        keeper.run = run  # type: ignore[attr-defined]
        ctx.save_for_backward(keeper)
        ctx.set_materialize_grads(False)
        return tuple(run.forward().values())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise EngineError(
                "the fast engine cannot be differentiated twice (create_graph=True). "
                "Use engine=autograd."
            )
        (keeper,) = ctx.saved_tensors
        return None, *keeper.run.backward(grads, ctx.needs_input_grad[1:])


class _Run:
    """One forward of one pass, with what its backward needs."""

    def __init__(self, inputs: PassInputs) -> None:
        self.inputs = inputs
        self.records: list[tuple[Group, Runner, Any]] = []  # in the order of the groups
        # Each tensor once, by identity: several cells may have it.
        unique = {id(p): p for own in inputs.parameters.values() for p in own}
        self.parameters: Sequence[Tensor] = list(unique.values())
        # Inside a Function's forward grad mode is always off, so what to record is decided here.
        self.tensors = self._differentiable() if torch.is_grad_enabled() else []
        self.keep = any(tensor.requires_grad for tensor in self.tensors)

    def _differentiable(self) -> list[Tensor]:
        """Every tensor that may get a gradient: the arguments of the function."""
        inputs = self.inputs
        return [
            *self.parameters,
            *inputs.shared.values(),
            *(tensor for value in inputs.x.values() for _, tensor in parts(value)),
            *inputs.edge.values(),
            *inputs.given.values(),
            *inputs.absent.values(),
        ]

    def forward(self) -> dict[str, Tensor]:
        if self._run_groups():
            self.records.clear()
            self._run_groups()
        if not self.keep:
            return self.buffers
        self.autocast = _autocast_state(self.inputs.device.type)
        return self._let_go()

    def _run_groups(self) -> bool:
        """Runs all groups; whether they are to run again.

        They are if cells got kernels just now. Those round in their own way, so every batch has the
        ones that are asked for: also the first of a process, which shows what a cell reads.
        """
        inputs = self.inputs
        self.buffers = self._empty_buffers()
        # What children are read from; a field of an earlier pass that this one does not write too.
        runners = self._runners({**inputs.given, **self.buffers})
        may_repeat = bool(inputs.fuse and self.by_cell)
        generators = generator_states(inputs.device) if may_repeat else []
        with self._aliased(), product_kernel(inputs.device) as kernel:
            for group in inputs.plan.groups:
                kernel.choose(group.stop - group.start)
                self._forward_group(group, runners.get(group.op_type))
        are_traced = [runner.finish(self.keep) for runner in runners.values()]  # all finish
        if not may_repeat or not any(are_traced):
            return False
        restore_generators(generators, inputs.device)
        return True

    def _forward_group(self, group: Group, runner: Runner | None) -> None:
        if runner is not None:
            kept = runner.forward(group)
            if self.keep:
                self.records.append((group, runner, kept))
        for name in self.inputs.carried[group.op_type]:
            self.buffers[name][group.rows] = self.inputs.given[name][group.rows].detach()

    def _let_go(self) -> dict[str, Tensor]:
        """The buffers; what backward does not need stays with those who do."""
        buffers = self.buffers
        if not self.inputs.recompute:
            self.buffers = {name: hollow(buffer) for name, buffer in buffers.items()}
            inputs = self.inputs
            self.inputs = inputs.hollow()
            count = len(self.parameters) + len(inputs.shared)
            self.tensors[count:] = [
                *inputs.hollow_x.values(),
                *inputs.hollow_edge.values(),
                *self.inputs.given.values(),
                *inputs.absent.values(),
            ]
        return buffers

    def _runners(self, state: Mapping[str, Tensor]) -> dict[int, Runner]:
        """op type -> what runs its groups."""
        inputs = self.inputs
        key = pass_key(inputs, self.keep)
        known = {
            op_type: CellPrograms(cell, op_type, inputs, self.keep, key)
            for op_type, cell in inputs.cells.items()
        }
        self.by_cell = [inputs.cells[t] for t, programs in known.items() if not programs.program]
        self.aliases = Aliases(self.parameters) if self.keep and self.by_cell else None
        shared = {name: cut(tensor) for name, tensor in inputs.shared.items()}
        number = {id(p): index for index, p in enumerate(self.parameters)}
        runners: dict[int, Runner] = {}
        places: dict[str, dict[int, Tensor]] = {}  # only programs ask for them
        if len(self.by_cell) < len(inputs.cells):
            places = {n: inputs.plan.split_rows(buffer) for n, buffer in self.buffers.items()}
        for op_type, cell in inputs.cells.items():
            program = known[op_type].program
            if program is None:
                runners[op_type] = CellRunner(
                    cell, inputs, state, self.buffers, shared, self.aliases, known[op_type]
                )
            else:
                own = inputs.parameters[op_type]
                numbers = [number[id(p)] for p in own] if self.keep else None
                runners[op_type] = ProgramRunner(
                    program, cell, op_type, inputs, state, places, numbers
                )
        return runners

    def _empty_buffers(self) -> dict[str, Tensor]:
        """field -> [num_rows + 1, width]; zero wherever no group writes."""
        inputs, buffers = self.inputs, {}
        size = inputs.plan.num_rows + 1
        for name, width in inputs.fields.items():
            buffer = torch.empty(size, width, dtype=inputs.dtype(name), device=inputs.device)
            if name in inputs.absent:
                buffer[0] = inputs.absent[name]
            else:
                buffer[0].zero_()
            buffers[name] = buffer
        for group in inputs.plan.groups:
            for name in inputs.lacking[group.op_type]:
                buffers[name][group.rows] = 0
        return buffers

    def _aliased(self) -> AbstractContextManager[None]:
        """The cells with what stands for their parameters while they run."""
        if self.aliases is None:
            return nullcontext()
        return aliased(self.by_cell, self.aliases.by_parameter)

    def backward(
        self, grads: Sequence[Tensor | None], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """The gradient of every one of `tensors` that needs it."""
        inputs = self.inputs
        gradients = Gradients(
            state=self._row_gradients(grads),
            given={n: torch.zeros_like(t) for n, t in inputs.given.items() if t.requires_grad},
        )
        lazy = LazyGradients(self.parameters)
        again = self._aliased() if inputs.recompute else nullcontext()
        with _autocast(inputs.device.type, *self.autocast):
            with again, product_kernel(inputs.device) as kernel:
                for group, runner, kept in self._reversed():
                    kernel.choose(group.stop - group.start)
                    runner.backward(group, kept, gradients, lazy)
            lazy.take(gradients.outside)
        self._add_given(gradients)
        outside = [*self.parameters, *inputs.shared.values()]
        found = [
            *(gradients.outside.get(number) for number in range(len(outside))),
            *(gradients.x.get((t, name)) for t, x in inputs.x.items() for name, _ in parts(x)),
            *(gradients.edge.get(name) for name in inputs.edge),
            *(gradients.given.get(name) for name in inputs.given),
            *(gradients.state[name].absent() for name in inputs.absent),
        ]
        # What no node of this batch used gets zeros, not None, as it does in a layer.
        return [
            (torch.zeros_like(tensor) if grad is None else grad) if need else None
            for tensor, grad, need in zip(self.tensors, found, needs, strict=True)
        ]

    def _reversed(self) -> Iterator[tuple[Group, Runner, Any]]:
        """The records from the last to the first; each is forgotten, unless the graph is kept."""
        if keeps_graph():
            yield from reversed(self.records)
            return
        while self.records:
            yield self.records.pop()

    def _row_gradients(self, grads: Sequence[Tensor | None]) -> dict[str, RowGradients]:
        plan, readers = self.inputs.plan, GroupReaders(self.inputs.plan)
        incoming = dict(zip(self.inputs.fields, grads, strict=True))
        found = {}
        for name, state in {**self.inputs.given, **self.buffers}.items():
            gathering = [g for g, runner, kept in self.records if runner.gathers(kept, name)]
            num_edges = sum(group.num_edges for group in gathering)
            complete = num_edges == plan.child_row.shape[0]
            found[name] = RowGradients(plan, readers, state, incoming.get(name), complete)
        return found

    def _add_given(self, gradients: Gradients) -> None:
        """Adds what the state of earlier passes got as children or was carried over."""
        if not gradients.given:
            return
        for name, total in gradients.given.items():
            if name not in self.buffers:
                inside = gradients.state[name].pull_all()
                if inside is not None:
                    total += inside
        for group in self.inputs.plan.groups:
            for name in self.inputs.carried[group.op_type]:
                grad = gradients.state[name].pull(group)
                if grad is not None and name in gradients.given:
                    gradients.given[name][group.rows] += grad


def _autocast_state(kind: str) -> tuple[bool, torch.dtype]:
    """Whether autocast is on for a kind of device, and its dtype."""
    return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)


def _autocast(kind: str, enabled: bool, dtype: torch.dtype) -> AbstractContextManager[None]:
    """A context with autocast as it was in forward."""
    if _autocast_state(kind) == (enabled, dtype):
        return nullcontext()
    return torch.autocast(kind, dtype=dtype, enabled=enabled)
