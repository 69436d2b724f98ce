"""Tracing: from a cell to a `Program`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.engine.programs.joint import Joint, Untraceable
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.engine.programs.program_graph import make_program

#: Sizes that stand for any, and differ from each other; the widths of a cell stay as they are.
GROUP_SIZE, NUM_EDGES = 7, 13
#: Group sizes with which a program must repeat the cell's numbers. One is special in torch: a
#: dimension of size one is stretched to any other.
CHECKED_SIZES = (1, 2, 6)


def trace(joint: Joint) -> Program:
    """A cell as straight-line code.

    Raises:
        Untraceable: if the cell's code depends on values or on the size of a group, or if the code
            found does not repeat its numbers exactly.
    """
    # What is made up for the check must not change the random numbers of a run.
    with (
        torch.random.fork_rng(devices=_cuda_devices(joint)),
        _other_generators(),
        torch.inference_mode(False),
    ):
        try:
            program = _trace(joint)
            constants = program.constants(*(p.detach() for p in joint.parameters * 2))
            for size in CHECKED_SIZES:
                _check(joint, program, constants, size)
            if any(slot.per == "edge" for slot in joint.slots):
                _check(joint, program, constants, 2, has_edges=False)
        except Untraceable as error:
            raise Untraceable(str(error)) from None  # what is kept of it holds no tensors
        except Exception as error:  # tracing runs foreign code on tensors without values
            reason = str(error).strip().splitlines()
            raise Untraceable(f"{type(error).__name__}: {reason[0] if reason else ''}") from None
    return program


@contextmanager
def _other_generators() -> Iterator[None]:
    """Those of Python and NumPy stay as they are; raises Untraceable if the block drew numbers."""
    before = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    try:
        yield
        after = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
        if repr(after) != repr(before):
            raise Untraceable("it draws random numbers")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _trace(joint: Joint) -> Program:
    # Imported here: they bring much of torch's compiler along.
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )

    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)

    def fake(tensor: Tensor, is_open: bool) -> Tensor:
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if is_open:
            sizes[0] = DimDynamic.DUCK  # equal sizes are one size
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        return mode.from_tensor(tensor, symbolic_context=context)

    read = [fake(_empty(slot, joint.cell.arity), True) for slot in joint.slots]
    parameters = [fake(p.detach(), False) for p in joint.parameters] * 2
    grads = [fake(grad, True) for grad in _output_grads(joint, GROUP_SIZE)]
    traced = make_fx(joint, tracing_mode="symbolic")(*read, *parameters, *grads)
    if shapes.guards:
        raise Untraceable("its code depends on how many nodes are in a group")
    # The slots outlive the batch that they were found in.
    slots = [slot._replace(like=slot.like[:0].clone()) for slot in joint.slots]
    return make_program(traced.graph, slots, len(parameters), joint.dtypes, joint.layout)


def _check(
    joint: Joint, program: Program, constants: Sequence[Any], size: int, has_edges: bool = True
) -> None:
    """Raises Untraceable unless the code gives what the cell gives, on numbers made up."""
    read = [_made_up(slot, size, joint.cell.arity, has_edges) for slot in joint.slots]
    parameters = [p.detach() for p in joint.parameters] * 2
    grads = _output_grads(joint, size)
    expected = joint(*read, *parameters, *grads)
    device = joint.slots[0].like.device
    outputs = [
        torch.empty(size, width, dtype=dtype, device=device)
        for width, dtype in zip(joint.cell.fields.values(), joint.dtypes, strict=True)
    ]
    with torch.no_grad():
        saved = program.forward(*read, *constants, *outputs)
        if joint.differentiate:
            outputs += program.backward.without(frozenset())(*saved, *constants, *grads)
    for one, other in zip(expected, outputs, strict=True):
        if not torch.equal(one, other):
            raise Untraceable("its numbers differ from call to call, or from those of its trace")


def _output_grads(joint: Joint, size: int) -> list[Tensor]:
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


def _empty(slot: Slot, arity: int | None) -> Tensor:
    trailing = slot.like.shape[1:]
    if slot.per == "child" and arity is not None:
        return slot.like.new_empty(GROUP_SIZE, arity, *trailing)
    count = {"node": GROUP_SIZE, "edge": NUM_EDGES, "ptr": GROUP_SIZE + 1}[slot.per]
    return slot.like.new_empty(count, *trailing)


def _made_up(slot: Slot, size: int, arity: int | None, has_edges: bool) -> Tensor:
    """Numbers for a group; codes are taken as they come.

    Where the cell has no arity, node k has k % 3 + 1 children, or none has any.
    """
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
    return made.view(size, -1, *made.shape[1:]) if slot.per == "child" else made


def _cuda_devices(joint: Joint) -> list[int]:
    devices = {slot.like.device for slot in joint.slots}
    return [
        device.index for device in devices if device.type == "cuda" and device.index is not None
    ]
