"""The fast engine: one state buffer per field, one autograd function per pass.

Forward runs each group on leaves that are cut off from what came before, and keeps the group's own
small autograd graph. Backward replays the groups in reverse, each graph on its own, and adds the
gradients of the leaves to the rows they were read from. The state is never concatenated or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.aliases import aliased, unique_parameters
from graphfold.batching.captured import refuse_captured, refuse_changed_buffers
from graphfold.batching.children import Children
from graphfold.batching.lazy import LazyGradients, LazyParameter
from graphfold.batching.pass_inputs import PassInputs, check_state
from graphfold.batching.schedule import Group
from graphfold.batching.tape import Gradients, Tape, TapeReader, read_edge, read_x
from graphfold.errors import EngineError


def run_fast(inputs: PassInputs) -> dict[str, Tensor]:
    """Runs one pass.

    Returns:
        field -> [num_nodes + 1, width], rows in plan order; row 0 is what absent children read.

    Raises:
        EngineError: if a cell reads a tensor that requires a gradient and is neither an argument
            nor a registered parameter, or a module of it changes its buffers in training.
        ShapeError: if a cell returns something else than its fields.
    """
    run = _Run(inputs)
    # Inside a Function's forward grad mode is always off, so the decision to record falls here.
    run.keep = torch.is_grad_enabled() and any(t.requires_grad for t in run.tensors)
    buffers = _Levels.apply(run, *run.tensors)  # type: ignore[no-untyped-call]
    return {**inputs.given, **dict(zip(run.fields, buffers, strict=True))}


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
        return tuple(buffers)

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
        self.fields = inputs.fields
        self.keep = False
        self.tapes: list[Tape] = []
        cells = list(inputs.cells.values())
        self.parameters: Sequence[Tensor] = unique_parameters(cells)
        self.shared = list(inputs.shared)
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
        self.outside = [_cut(t) for t in (*self.parameters, *inputs.shared.values())]
        self.lazy = LazyGradients()

    def forward(self) -> list[Tensor]:
        inputs = self.inputs
        self.autocast = _autocast_state(inputs.device)
        buffers = {
            name: torch.zeros(
                inputs.plan.num_nodes + 1, width, dtype=inputs.dtype(name), device=inputs.device
            )
            for name, width in self.fields.items()
        }
        for name, value in inputs.absent.items():
            buffers[name][0] = value
        shared = dict(zip(self.shared, self.outside[len(self.parameters) :], strict=True))
        seen: set[int] = set()
        with aliased(inputs.cells.values(), self._aliases()):
            for group in inputs.plan.groups:
                if group.op_type in inputs.cells:
                    first = group.op_type not in seen
                    seen.add(group.op_type)
                    self._forward_group(group, buffers, shared, first)
                rows = slice(group.start, group.stop)
                for name in inputs.carried(group):
                    buffers[name][rows] = inputs.given[name][rows]
        return list(buffers.values())

    def _aliases(self) -> dict[int, Tensor]:
        """What stands for each parameter while the cells run, by the parameter's id."""
        return {
            id(p): LazyParameter.wrap(leaf, self.lazy) if self.keep and p.requires_grad else leaf
            for p, leaf in zip(self.parameters, self.outside, strict=False)
        }

    def _forward_group(
        self, group: Group, buffers: dict[str, Tensor], shared: dict[str, Tensor], first: bool
    ) -> None:
        inputs, cell = self.inputs, self.inputs.cells[group.op_type]
        tape = Tape(group) if self.keep else None
        ptr = inputs.plan.child_ptr[group.start - 1 : group.stop] - group.edge_start
        children = Children(
            TapeReader(inputs, buffers, group, ptr, tape),
            ptr,
            inputs.plan.parent[group.edge_start : group.edge_stop],
            cell.arity,
            read_edge(inputs, group, tape),
            shared,
            inputs.kernel,
        )
        with torch.set_grad_enabled(self.keep), refuse_changed_buffers(cell, first):
            state = cell(read_x(inputs, group, tape), children)
        check_state(cell, state, group)
        for name in cell.fields:
            buffers[name][group.start : group.stop] = state[name].detach()
        if tape is not None:
            tape.outputs = {n: s for n, s in state.items() if n in cell.fields and s.requires_grad}
            if first:
                refuse_captured(cell, tape.outputs.values(), [*tape.leaves, *self.outside])
            self.tapes.append(tape)

    def backward(
        self, grads: Sequence[Tensor | None], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        inputs = self.inputs
        gradients = Gradients(
            state=self._incoming(grads),
            given={name: torch.zeros_like(t) for name, t in inputs.given.items()},
            x={(op_type, name): torch.zeros_like(t) for op_type, name, t in self.x_keys},
            edge={name: torch.zeros_like(t) for name, t in inputs.edge.items()},
        )
        totals: list[Tensor | None] = [None] * len(self.outside)
        with self.autocast:
            for tape in reversed(self.tapes):
                self._backward_group(tape, gradients, totals)
            self.lazy.take(self.outside, totals)
        self._return_carried(gradients)
        outside = [
            torch.zeros_like(t) if total is None else total
            for t, total in zip(self.outside, totals, strict=True)
        ]
        absent = [gradients.state[name][0] for name in inputs.absent]
        found = [*outside, *gradients.x.values(), *gradients.edge.values()]
        found += [*gradients.given.values(), *absent]
        return [grad if need else None for grad, need in zip(found, needs, strict=True)]

    def _backward_group(
        self, tape: Tape, gradients: Gradients, totals: list[Tensor | None]
    ) -> None:
        if not tape.outputs:
            return
        rows = slice(tape.group.start, tape.group.stop)
        outputs = list(tape.outputs.values())
        wanted = [index for index, t in enumerate(self.outside) if t.requires_grad]
        found = torch.autograd.grad(
            outputs,
            [*tape.leaves, *(self.outside[index] for index in wanted)],
            [gradients.state[n][rows].to(o.dtype) for n, o in tape.outputs.items()],
            retain_graph=True,  # the keeper frees the tapes, so that retain_graph=True works
            allow_unused=True,
        )
        for grad, deposit in zip(found, tape.deposits, strict=False):
            if grad is not None:
                deposit(grad, gradients)
        for index, grad in zip(wanted, found[len(tape.leaves) :], strict=True):
            if grad is not None:
                total = totals[index]
                totals[index] = grad.clone() if total is None else total.add_(grad)

    def _incoming(self, grads: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Gradients of the outputs, each in memory of its own that can be added to."""
        inputs = self.inputs
        shape = inputs.plan.num_nodes + 1
        return {
            name: torch.zeros(shape, width, dtype=inputs.dtype(name), device=inputs.device)
            if grad is None
            else grad.clone(memory_format=torch.contiguous_format)
            for (name, width), grad in zip(self.fields.items(), grads, strict=True)
        }

    def _return_carried(self, gradients: Gradients) -> None:
        for group in self.inputs.plan.groups:
            rows = slice(group.start, group.stop)
            for name in self.inputs.carried(group):
                gradients.given[name][rows] += gradients.state[name][rows]


def _cut(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _autocast_state(device: torch.device) -> torch.autocast:
    """A context that restores the autocast state of now."""
    kind = device.type
    return torch.autocast(
        kind,
        dtype=torch.get_autocast_dtype(kind),
        enabled=torch.is_autocast_enabled(kind),
    )
