"""Joint: what is traced of a cell, its forward and its backward as one function of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.children import Children, StateReader
from graphfold.batching.engine.aliases import aliased
from graphfold.batching.engine.lazy_parameters import Aliases, LazyParameter
from graphfold.batching.engine.programs.program import Layout, Slot
from graphfold.batching.kernels.fast_kernels import FastKernels
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.kernels.segment_kernels import Kernel


class Untraceable(Exception):
    """A cell that has to run as it is, with the reason."""


def first_line(error: Exception) -> str:
    """The kind of an error, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


class Joint:
    """A cell's forward, and backward if wanted, as one function of tensors.

    Args:
        cell: the cell.
        slots: what it reads.
        kernel: what computes its reductions.
        differentiate: whether backward belongs to it.
        dtypes: of the buffers of its fields.
    """

    def __init__(
        self,
        cell: Cell,
        slots: Sequence[Slot],
        kernel: Kernel,
        differentiate: bool,
        dtypes: Sequence[torch.dtype],
    ) -> None:
        self.cell = cell
        # Buffers are read as parameters are; nobody asks for their gradients.
        self.parameters: list[Tensor] = [*cell.parameters(), *cell.buffers()]
        self.slots = slots
        self.kernel = kernel
        self.differentiate = differentiate
        self.dtypes = dtypes
        self.device = slots[0].like.device
        self.layout = Layout()
        # Made here: inside a trace no tensor may be made of one with values.
        self._handles = list(map(LazyParameter.wrap, self.parameters))

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Outputs, then results as in `Layout`.

        Args:
            tensors: what is in the slots, the parameters twice (once for uses that are deferred),
                the gradients of the outputs.
        """
        num_slots, num_parameters = len(self.slots), len(self.parameters)
        read, rest = list(tensors[:num_slots]), tensors[num_slots:]
        plain, deferred = rest[:num_parameters], rest[num_parameters : 2 * num_parameters]
        if not self.differentiate:
            by_parameter = {id(p): t for p, t in zip(self.parameters, plain, strict=True)}
            return list(self._run(read, by_parameter).values())
        with torch.enable_grad():
            read = [_leaf(t, s.needs_grad) for t, s in zip(read, self.slots, strict=True)]
            aliases = Aliases(self.parameters, plain, deferred, self._handles)
            outputs = self._run(read, aliases.by_parameter)
        grads = rest[2 * num_parameters :]
        return [*outputs.values(), *self._differentiate(outputs, read, aliases, grads)]

    def _run(self, read: Sequence[Tensor], by_parameter: dict[int, Tensor]) -> dict[str, Tensor]:
        given, stacks = {}, {}
        for slot, tensor in zip(self.slots, read, strict=True):
            given[slot.how, slot.name] = tensor
            if slot.per == "child":
                given[slot.how, slot.name] = tensor.flatten(0, 1)
                stacks[slot.name] = tensor
        edge = {name: tensor for (how, name), tensor in given.items() if how == "edge"}
        parts = {name: tensor for (how, name), tensor in given.items() if how == "x"}
        x: NodeInput = parts[""] if list(parts) == [""] else parts
        reader = SlotReader(given, stacks)
        children = Children(reader, self._size(read), self.cell.arity, edge, {}, self.kernel)
        with aliased([self.cell], by_parameter), FastKernels():
            state = self.cell.forward(x, children)
        return {name: state[name] for name in self.cell.fields}

    def _size(self, read: Sequence[Tensor]) -> int:
        """How many nodes the group has."""
        ends = {"node": 0, "child": 0, "ptr": 1}
        found = ((t, ends[s.per]) for s, t in zip(self.slots, read, strict=True) if s.per in ends)
        for tensor, end in found:
            return tensor.shape[0] - end
        raise Untraceable("nothing that it reads tells how many nodes run")

    def _differentiate(
        self,
        outputs: Mapping[str, Tensor],
        read: Sequence[Tensor],
        aliases: Aliases,
        grads: Sequence[Tensor],
    ) -> list[Tensor]:
        leaves = [t for t in read if t.requires_grad]
        uses, plain = aliases.uses, list(aliases.plain_used)
        wanted = [*leaves, *(use.output for use in uses), *(aliases.plain[n] for n in plain)]
        pairs = zip(outputs.values(), grads, strict=True)
        known = [(output, grad) for output, grad in pairs if output.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(wanted)
        if known and wanted:
            found = torch.autograd.grad(
                [output for output, _ in known],
                wanted,  # type: ignore[arg-type]
                [grad for _, grad in known],
                allow_unused=True,
            )
        rest = iter(found)
        of_leaves = [_or_zeros(next(rest), leaf) for leaf in leaves]
        # What the outputs do not depend on is left out.
        of_uses = [(use, grad) for use in uses if (grad := next(rest)) is not None]
        of_plain = [(n, grad) for n in plain if (grad := next(rest)) is not None]
        self.layout = Layout([use[:3] for use, _ in of_uses], [n for n, _ in of_plain])
        factors = [tensor for use, grad in of_uses for tensor in (use.input, grad)]
        return [*of_leaves, *factors, *(grad for _, grad in of_plain)]


class SlotReader(StateReader):
    """Reads what was put into slots."""

    def __init__(
        self, given: Mapping[tuple[str, str], Tensor], stacks: Mapping[str, Tensor]
    ) -> None:
        self._given = given
        self._stacks = stacks

    @property
    def ptr(self) -> Tensor:  # type: ignore[override]
        return self._get("ptr")

    @property
    def parent(self) -> Tensor:  # type: ignore[override]
        return self._get("parent")

    def rows(self, field: str) -> Tensor:
        return self._get("rows", field)

    def stack(self, field: str, size: int, arity: int) -> Tensor:
        self._get("rows", field)
        return self._stacks[field]

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        if weight is not None:
            return segment_sum(self.rows(field) * weight.unsqueeze(1), self.ptr, self.parent)
        return self._get("sum", field)

    def previous(self, field: str) -> Tensor:
        return self._get("previous", field)

    def child_count(self) -> Tensor:
        return self._get("child_count")

    def _get(self, how: str, name: str = "") -> Tensor:
        if (how, name) not in self._given:
            raise Untraceable(f"it reads {how} {name} in some groups only")
        return self._given[how, name]


def _or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad


def _leaf(tensor: Tensor, needs_grad: bool) -> Tensor:
    return tensor.detach().requires_grad_(needs_grad)
