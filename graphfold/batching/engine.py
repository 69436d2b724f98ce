"""The fast engine: one state buffer per field, one autograd function per pass.

Forward runs each group on leaves that are cut off from what came before, and keeps the group's own
small autograd graph. Backward replays the groups in reverse, each graph on its own; a group's
gradient is pulled from those that read it. The state is never concatenated or copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from graphfold.batching.aliases import aliased, unique_parameters
from graphfold.batching.captured import refuse_captured, refuse_changed_buffers
from graphfold.batching.cell import Cell, State
from graphfold.batching.children import Children
from graphfold.batching.differentiate import gradients as gradients_of
from graphfold.batching.lazy import Aliases, LazyGradients, cut
from graphfold.batching.pass_inputs import PassInputs, check_state
from graphfold.batching.program import Program
from graphfold.batching.programs import CellPrograms, read_slots
from graphfold.batching.row_gradients import RowGradients
from graphfold.batching.schedule import Group, PassSchedule
from graphfold.batching.tape import Gradients, Tape, TapeReader, read_edge, read_x
from graphfold.errors import EngineError


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
    # Inside a Function's forward grad mode is always off, so the decision to record falls here.
    run.keep = torch.is_grad_enabled() and any(t.requires_grad for t in run.tensors)
    buffers = _Levels.apply(run, *run.tensors)  # type: ignore[no-untyped-call]
    return {**inputs.given, **dict(zip(inputs.fields, buffers, strict=True))}


class _Levels(torch.autograd.Function):
    """All groups of a pass as one node of the autograd graph outside."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: Tensor) -> tuple[Tensor, ...]:
        buffers = run.forward()
        if run.keep:
            # The tapes hang on a tensor that autograd keeps, and frees when it frees its graph:
            # so a second backward needs retain_graph=True, as everywhere in torch.
            keeper = torch.empty(0)
            keeper.run = run  # type: ignore[attr-defined]
            ctx.save_for_backward(keeper)
            ctx.set_materialize_grads(False)
        return tuple(buffers.values())

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
    """One forward of one pass, with its tapes."""

    def __init__(self, inputs: PassInputs) -> None:
        self.inputs = inputs
        self.keep = False
        self.tapes: list[Tape] = []
        self.parameters: Sequence[Tensor] = unique_parameters(inputs.cells.values())
        self.x_keys = [
            (op_type, name, tensor)
            for op_type, value in inputs.x.items()
            for name, tensor in ([("", value)] if isinstance(value, Tensor) else value.items())
        ]
        # Every tensor that may get a gradient is an argument of the function.
        self.tensors: list[Tensor] = [
            *self.parameters,
            *inputs.shared.values(),
            *(tensor for _, _, tensor in self.x_keys),
            *inputs.edge.values(),
            *inputs.given.values(),
            *inputs.absent.values(),
        ]
        # Each cell's parameters as a program gets them, and their numbers among all; None is None.
        number = {id(p): index for index, p in enumerate(self.parameters)}
        own = {op_type: list(cell.parameters()) for op_type, cell in inputs.cells.items()}
        self._values = {op_type: [p.detach() for p in ps] for op_type, ps in own.items()}
        self._numbers: dict[int, dict[int | None, Any]] = {
            op_type: {None: None, **{index: number[id(p)] for index, p in enumerate(ps)}}
            for op_type, ps in own.items()
        }
        self.shared = {name: cut(tensor) for name, tensor in inputs.shared.items()}

    def forward(self) -> dict[str, Tensor]:
        inputs = self.inputs
        self.autocast = _autocast_state(inputs.device)
        self.buffers = self._empty_buffers()
        self.aliases = Aliases(self.parameters) if self.keep else None
        # What children are read from; a field of an earlier pass that this one does not write too.
        state = {**inputs.given, **self.buffers}
        programs = {
            op_type: CellPrograms(cell, op_type, inputs, self.keep)
            for op_type, cell in inputs.cells.items()
        }
        with torch.set_grad_enabled(self.keep), self._aliased():
            self._forward_groups(state, programs)
        for known in programs.values():
            known.finish()
        return self.buffers

    def _forward_groups(
        self, state: Mapping[str, Tensor], programs: Mapping[int, CellPrograms]
    ) -> None:
        inputs, seen = self.inputs, set()
        for group in inputs.plan.groups:
            cell = inputs.cells.get(group.op_type)
            if cell is not None:
                first = group.op_type not in seen
                seen.add(group.op_type)
                run = self._check_group if first else self._forward_group
                run(cell, group, state, programs[group.op_type])
            for name in inputs.carried[group.op_type]:
                rows = slice(group.start, group.stop)
                self.buffers[name][rows] = inputs.given[name][rows].detach()

    def _empty_buffers(self) -> dict[str, Tensor]:
        """field -> [num_rows + 1, width]; zero wherever no group writes."""
        inputs, buffers = self.inputs, {}
        size = inputs.plan.num_rows + 1
        for name, width in inputs.fields.items():
            buffer = torch.empty(size, width, dtype=inputs.dtype(name), device=inputs.device)
            buffer[0] = inputs.absent.get(name, 0)
            buffers[name] = buffer
        for group in inputs.plan.groups:
            for name in inputs.lacking[group.op_type]:
                buffers[name][group.start : group.stop] = 0
        return buffers

    def _aliased(self) -> AbstractContextManager[None]:
        """The cells with what stands for their parameters while they run."""
        if self.aliases is None:
            return nullcontext()
        return aliased(self.inputs.cells.values(), self.aliases.by_parameter)

    def _check_group(
        self, cell: Cell, group: Group, state: Mapping[str, Tensor], programs: CellPrograms
    ) -> None:
        """The first group of a type, in which a cell that is run for itself is watched."""
        if programs.program is not None:
            self._forward_group(cell, group, state, programs)
            return
        with refuse_changed_buffers(cell):
            self._forward_group(cell, group, state, programs)
        if self.aliases is not None:
            tape = self.tapes[-1]
            known = [*self.aliases.plain, *self.aliases.deferred, *self.shared.values()]
            refuse_captured(cell, tape.outputs.values(), [*tape.leaves, *known])

    def _forward_group(
        self, cell: Cell, group: Group, state: Mapping[str, Tensor], programs: CellPrograms
    ) -> None:
        program = programs.program
        tape = Tape(group, program=program) if self.keep else None
        reader = TapeReader(self.inputs, state, group, tape)
        if program is not None:
            new = self._run_program(cell, program, reader, group, tape)
        else:
            new = self._run_cell(cell, reader, group, tape)
            programs.has_run(reader)
        for name in cell.fields:
            self.buffers[name][group.start : group.stop] = new[name].detach()
        if tape is not None:
            self.tapes.append(tape)

    def _run_cell(self, cell: Cell, reader: TapeReader, group: Group, tape: Tape | None) -> State:
        inputs = self.inputs
        children = Children(
            reader,
            group.stop - group.start,
            cell.arity,
            read_edge(inputs, group, tape),
            self.shared,
            inputs.kernel,
        )
        state: State = cell(read_x(inputs, group, tape), children)
        check_state(cell, state, group)
        if tape is not None and self.aliases is not None:
            tape.outputs = {n: state[n] for n in cell.fields if state[n].requires_grad}
            tape.uses, self.aliases.uses = self.aliases.uses, []
        return state

    def _run_program(
        self, cell: Cell, program: Program, reader: TapeReader, group: Group, tape: Tape | None
    ) -> State:
        x, edge = read_x(self.inputs, group, tape), read_edge(self.inputs, group, tape)
        slots = read_slots(program, x, edge, reader)
        parameters = self._values[group.op_type]
        with torch.no_grad():
            found = program.forward(*slots, *parameters, *parameters)
        state = dict(zip(cell.fields, found, strict=False))
        if tape is not None:
            tape.outputs, tape.saved = state, found[program.num_outputs :]
        return state

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
        first_read = _first_reads(inputs.plan)
        with self.autocast:
            for tape in reversed(self.tapes):
                self._backward_group(tape, gradients, lazy, first_read[tape.group.start])
            lazy.take(gradients.outside)
        self._add_given(gradients, first_read)
        outside = [*self.parameters, *self.shared.values()]
        found = [
            *(gradients.outside.get(number) for number in range(len(outside))),
            *(gradients.x.get((op_type, name)) for op_type, name, _ in self.x_keys),
            *(gradients.edge.get(name) for name in inputs.edge),
            *(gradients.given.get(name) for name in inputs.given),
            *(gradients.state[name].absent() for name in inputs.absent),
        ]
        # What no node of this batch used gets zeros, not None, as it does in a layer.
        return [
            (torch.zeros_like(tensor) if grad is None else grad) if need else None
            for tensor, grad, need in zip(self.tensors, found, needs, strict=True)
        ]

    def _row_gradients(self, grads: Sequence[Tensor | None]) -> dict[str, RowGradients]:
        plan = self.inputs.plan
        incoming = dict(zip(self.inputs.fields, grads, strict=True))
        found = {}
        for name, state in {**self.inputs.given, **self.buffers}.items():
            readers = [tape.group for tape in self.tapes if name in tape.gathered]
            num_edges = sum(group.edge_stop - group.edge_start for group in readers)
            complete = num_edges == len(plan.child_row)
            found[name] = RowGradients(plan, state, incoming.get(name), complete)
        return found

    def _backward_group(
        self, tape: Tape, gradients: Gradients, lazy: LazyGradients, first_read: int
    ) -> None:
        pulled = {name: gradients.state[name].pull(tape.group, first_read) for name in tape.outputs}
        if all(grad is None for grad in pulled.values()):
            for leaf, deposit in zip(tape.leaves, tape.deposits, strict=True):
                deposit(torch.zeros_like(leaf), gradients)
        elif tape.program is not None:
            self._run_backward(tape.program, tape, pulled, gradients, lazy)
        else:
            self._replay(tape, pulled, gradients, lazy)

    def _run_backward(
        self,
        program: Program,
        tape: Tape,
        pulled: Mapping[str, Tensor | None],
        gradients: Gradients,
        lazy: LazyGradients,
    ) -> None:
        grads = [torch.zeros_like(tape.outputs[n]) if g is None else g for n, g in pulled.items()]
        found = iter(program.backward(*tape.saved, *grads))
        for leaf, deposit in zip(tape.leaves, tape.deposits, strict=True):
            deposit(next(found).view_as(leaf), gradients)
        numbers = self._numbers[tape.group.op_type]
        for kind, weight, bias in program.layout.uses:
            lazy.add(kind, numbers[weight], numbers[bias], next(found), next(found))
        for number, grad in zip(program.layout.plain, found, strict=True):
            gradients.add_outside(numbers[number], grad)

    def _replay(
        self,
        tape: Tape,
        pulled: Mapping[str, Tensor | None],
        gradients: Gradients,
        lazy: LazyGradients,
    ) -> None:
        outputs = {name: grad for name, grad in pulled.items() if grad is not None}
        outside = self._outside_leaves()
        wanted: list[Tensor | GradientEdge]
        wanted = [*tape.leaves, *(use.output for use in tape.uses), *outside.values()]
        found = iter(
            gradients_of(
                [tape.outputs[name] for name in outputs],
                [grad.to(tape.outputs[name].dtype) for name, grad in outputs.items()],
                wanted,
            )
        )
        for leaf, deposit in zip(tape.leaves, tape.deposits, strict=True):
            grad = next(found)
            deposit(torch.zeros_like(leaf) if grad is None else grad, gradients)
        for use in tape.uses:
            grad = next(found)
            if grad is not None:
                use.check()
                lazy.add(use.kind, use.weight, use.bias, use.input, grad)
        for number, grad in zip(outside, found, strict=True):
            if grad is not None:
                gradients.add_outside(number, grad)

    def _outside_leaves(self) -> dict[int, Tensor]:
        """The leaves of parameters and shared tensors whose gradient is not deferred."""
        assert self.aliases is not None
        leaves = {number: self.aliases.plain[number] for number in self.aliases.plain_used}
        shared = enumerate(self.shared.values(), start=len(self.parameters))
        return leaves | {number: tensor for number, tensor in shared if tensor.requires_grad}

    def _add_given(self, gradients: Gradients, first_read: Mapping[int, int]) -> None:
        """Adds what the state of earlier passes got as children or was carried over."""
        for name, total in gradients.given.items():
            if name not in self.buffers:
                inside = gradients.state[name].pull_all()
                if inside is not None:
                    total += inside
        for group in self.inputs.plan.groups:
            for name in self.inputs.carried[group.op_type]:
                grad = gradients.state[name].pull(group, first_read[group.start])
                if grad is not None and name in gradients.given:
                    gradients.given[name][group.start : group.stop] += grad


def _first_reads(plan: PassSchedule) -> dict[int, int]:
    """Where the readers of each group begin in `plan.reader_edge`, by the group's first row."""
    first = len(plan.reader_edge) - sum(group.num_read for group in plan.groups)
    found = {}
    for group in plan.groups:
        found[group.start] = first
        first += group.num_read
    return found


def _autocast_state(device: torch.device) -> torch.autocast:
    """A context that restores the autocast state of now."""
    kind = device.type
    return torch.autocast(
        kind,
        dtype=torch.get_autocast_dtype(kind),
        enabled=torch.is_autocast_enabled(kind),
    )
