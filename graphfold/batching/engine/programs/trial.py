"""Trial: a cell and its programs on one group of made-up numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from graphfold.batching.engine.programs.joint import Joint
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.engine.randomness import generator_states, restore_generators
from graphfold.batching.kernels.products import Apart, Rows
from graphfold.batching.kernels.tanh import FEW_NUMBERS

#: Group sizes with which a program must repeat the cell's numbers. One is special in torch: a
#: dimension of size one is stretched to any other.
CHECKED_SIZES = (1, 2, 6)


def agrees(joint: Joint, program: Program, same: Callable[[Tensor, Tensor], bool]) -> bool:
    """Whether a program gives the cell's numbers for groups of all kinds.

    Args:
        joint: the cell.
        program: one of it.
        same: whether a tensor of the cell and one of the program are the same.
    """
    # Some kernels leave few numbers to torch, so one group has many.
    enough = math.ceil(FEW_NUMBERS / max(1, min(joint.cell.fields.values())))
    trials = [Trial(joint, size) for size in (*CHECKED_SIZES, enough)]
    if any(slot.per == "edge" for slot in joint.slots):
        trials.append(Trial(joint, 2, has_edges=False))
    ways = (False, True) if joint.differentiate else (False,)
    pairs = (zip(*t.both(program, way), strict=True) for t in trials for way in ways)
    # A program may give the gradients of children in another shape.
    return all(same(one, other.reshape(one.shape)) for pair in pairs for one, other in pair)


class Trial:
    """A group of made-up numbers, and what a cell and its programs make of it.

    Args:
        joint: the cell.
        size: how many nodes the group has.
        has_edges: whether nodes of any number of children have some: node k has k % 3 + 1 then.
    """

    def __init__(self, joint: Joint, size: int, has_edges: bool = True) -> None:
        self._joint = joint
        self._size = size
        self.device = joint.device
        arity = joint.cell.arity
        self._read = [_made_up(slot, size, arity, has_edges) for slot in joint.slots]
        self._parameters = [p.detach() for p in joint.parameters] * 2
        self._grads = output_grads(joint, size)

    def both(self, program: Program, placed: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs and results of the cell and of a program, both with the same random numbers."""
        before = generator_states(self.device)
        own = self.cell()
        restore_generators(before, self.device)
        return own, self.program(program, placed)

    def cell(self) -> list[Tensor]:
        """Outputs and results of the cell itself, see `Joint`."""
        return self._joint(*self._read, *self._parameters, *self._grads)

    def program(self, program: Program, placed: bool = False) -> list[Tensor]:
        """The same of a program, whose backward is given places or not."""
        joint = self._joint
        widths = zip(joint.cell.fields.values(), joint.dtypes, strict=True)
        places = [
            torch.empty(self._size, width, dtype=dtype, device=joint.device)
            for width, dtype in widths
        ]
        with torch.no_grad():
            constants = program.constants(*self._parameters)
            read = [
                _as_read(self._read[i], joint.slots[i], program.slots[i]) for i in program.reads
            ]
            saved = program.forward(*read, *constants, *places)
            if not joint.differentiate:
                return places
            backward = program.backward.without(placed=placed)
            own = self._child_places() if placed else {}
            found = backward(*saved, *constants, *self._grads, *own.values())
            results = [r.gather() if isinstance(r, Apart) else r for r in found]
            for index, place in own.items():
                results[index] = place
            return [*places, *results]

    def _child_places(self) -> dict[int, Tensor]:
        """Position among the slots' gradients -> [num_child_edges, ...] memory for one of rows."""
        wanted = [
            (slot, tensor)
            for slot, tensor in zip(self._joint.slots, self._read, strict=True)
            if slot.needs_grad
        ]
        return {
            index: torch.full_like(
                tensor.flatten(0, 1) if slot.per == "child" else tensor, math.nan
            )
            for index, (slot, tensor) in enumerate(wanted)
            if slot.how == "rows"
        }


def _as_read(tensor: Tensor, own: Slot, slot: Slot) -> Rows:
    """What a program reads, from what its cell reads."""
    if slot.per != own.per:  # side by side for the cell, in the order of edges for the program
        tensor = tensor.flatten(0, 1)
    return Apart(tensor, torch.arange(len(tensor))) if slot.is_apart else tensor


def output_grads(joint: Joint, size: int) -> list[Tensor]:
    """[size, width] numbers for the gradients of the outputs."""
    if not joint.differentiate:
        return []
    like = next(
        t for t in (*joint.parameters, *(s.like for s in joint.slots)) if t.is_floating_point()
    )
    return [
        torch.rand(size, width, dtype=like.dtype, device=like.device)
        for width in joint.cell.fields.values()
    ]


def _made_up(slot: Slot, size: int, arity: int | None, has_edges: bool) -> Tensor:
    """Numbers for a group; codes are taken as they come."""
    device = slot.like.device
    count = torch.arange(size, device=device) % 3 + 1
    if arity is not None or not has_edges:
        count = torch.full_like(count, arity or 0)
    if slot.how == "ptr":
        return torch.cat([count.new_zeros(1), count.cumsum(0)])
    rows = size if slot.per == "node" else int(count.sum())
    if slot.how == "parent":
        made = torch.repeat_interleave(torch.arange(size, device=device), count)
    elif slot.like.is_floating_point():
        made = torch.rand(rows, *slot.like.shape[1:], dtype=slot.like.dtype, device=device)
    else:
        made = slot.like[torch.arange(rows, device=device) % max(len(slot.like), 1)]
    return made.view(size, arity or 0, *made.shape[1:]) if slot.per == "child" else made
