"""CellRunner: a cell's groups run by the cell itself, each under a small autograd graph."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from graphfold.batching.cell import Cell
from graphfold.batching.children import Children
from graphfold.batching.engine.captured import refuse_captured
from graphfold.batching.engine.differentiate import gradients as gradients_of
from graphfold.batching.engine.gradients import Gradients
from graphfold.batching.engine.lazy_gradients import LazyGradients
from graphfold.batching.engine.lazy_parameters import Aliases
from graphfold.batching.engine.pass_inputs import PassInputs, check_state
from graphfold.batching.engine.programs.programs import CellPrograms
from graphfold.batching.engine.randomness import refuse_random
from graphfold.batching.engine.refusals import refuse_group_statistics
from graphfold.batching.engine.tape import Tape, TapeReader, read_edge, read_x
from graphfold.batching.kernels.fast_kernels import FastKernels
from graphfold.batching.scheduling.schedule import Group

DRAWN_TWICE = (
    "backward would compute its groups again with other ones. Draw them in before, or do not "
    "recompute (model.recompute=false)."
)


class CellRunner:
    """Runs the groups of one cell in one pass.

    Args:
        cell: the cell; while it runs, its modules hold `aliases` in the place of parameters.
        inputs: the pass.
        state: field -> [num_rows + 1, width] what children are read from.
        buffers: those of them that the pass writes.
        shared: tensors that every node may read, by name, cut off from the graph outside.
        aliases: what stands for the parameters, or None if the pass is not differentiated.
        programs: counts the groups, so that the cell is traced once that pays.
    """

    def __init__(
        self,
        cell: Cell,
        inputs: PassInputs,
        state: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        shared: Mapping[str, Tensor],
        aliases: Aliases | None,
        programs: CellPrograms,
    ) -> None:
        self.cell = cell
        self._inputs = inputs
        self._state = state
        self._buffers = buffers
        self._shared = shared
        self._aliases = aliases
        self._programs: CellPrograms | None = programs
        self._recompute = inputs.recompute
        self._is_first = True

    def forward(self, group: Group) -> Tape | None:
        """Runs a group; returns what backward needs of it."""
        tape = None if self._aliases is None else Tape()
        with ExitStack() as checks:
            if self._is_first:
                checks.enter_context(refuse_group_statistics(self.cell))
            if self._recompute:
                name, device = type(self.cell).__name__, self._inputs.device
                checks.enter_context(refuse_random(name, device, DRAWN_TWICE))
            new = self._call(group, tape)
        for field in self.cell.fields:
            self._buffers[field][group.rows] = new[field].detach()
        if tape is not None and self._is_first:
            self._refuse_captured(tape)
        if tape is not None and self._recompute:
            tape.forget()
        self._is_first = False
        return tape

    def gathers(self, tape: Tape, field: str) -> bool:
        """Whether a group has read its children's rows of a field."""
        return field in tape.gathered

    def backward(
        self,
        group: Group,
        tape: Tape,
        gradients: Gradients,
        lazy: LazyGradients,
    ) -> None:
        """Adds the gradients of one group to those of the pass."""
        if self._recompute:
            self._call(group, tape)
        pulled = {name: gradients.state[name].pull(group) for name in tape.outputs}
        outputs = {name: grad for name, grad in pulled.items() if grad is not None}
        if outputs:
            self._replay(tape, outputs, gradients, lazy)
        else:
            for leaf, deposit in zip(tape.leaves, tape.deposits, strict=True):
                deposit(torch.zeros_like(leaf), gradients)
        if self._recompute:
            tape.forget()

    def finish(self, keep: bool) -> bool:
        """After the pass, when the cell has its own parameters again.

        Lets go of what it read, if it is kept for backward.

        Returns:
            Whether the cell has been traced now.
        """
        is_traced = self._programs is not None and self._programs.finish()
        self._programs = None
        if keep and not self._recompute:
            self._inputs, self._state, self._buffers = self._inputs.hollow(), {}, {}
        return is_traced

    def _call(self, group: Group, tape: Tape | None) -> Mapping[str, Tensor]:
        inputs, cell = self._inputs, self.cell
        reader = TapeReader(inputs, self._state, group, tape)
        children = Children(
            reader,
            group.size,
            cell.arity,
            read_edge(inputs, group, tape),
            self._shared,
            inputs.kernel,
        )
        with torch.set_grad_enabled(tape is not None), FastKernels():
            new: Mapping[str, Tensor] = cell(read_x(inputs, group, tape), children)
        check_state(cell, new, group)
        if tape is not None and self._aliases is not None:
            tape.outputs = {n: new[n] for n in cell.fields if new[n].requires_grad}
            tape.uses, self._aliases.uses = self._aliases.uses, []
        if self._programs is not None:
            self._programs.has_run(reader, group.size)
        return new

    def _refuse_captured(self, tape: Tape) -> None:
        """What the first group reads is what all read."""
        assert self._aliases is not None
        known = [*self._aliases.plain, *self._aliases.deferred, *self._shared.values()]
        refuse_captured(self.cell, tape.outputs.values(), [*tape.leaves, *known])

    def _replay(
        self, tape: Tape, outputs: Mapping[str, Tensor], gradients: Gradients, lazy: LazyGradients
    ) -> None:
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
        assert self._aliases is not None
        leaves = {number: self._aliases.plain[number] for number in self._aliases.plain_used}
        shared = enumerate(self._shared.values(), start=len(self._aliases.plain))
        return leaves | {number: tensor for number, tensor in shared if tensor.requires_grad}
