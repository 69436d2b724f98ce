"""Tracing: from a cell to a `Program`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.choice import Make, choose
from graphfold.batching.engine.programs.joint import Joint, Untraceable, first_line
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.engine.programs.program_graph import make_program
from graphfold.batching.engine.programs.trial import agrees, output_grads

#: Sizes that stand for any, and differ from each other; the widths of a cell stay as they are.
GROUP_SIZE, NUM_EDGES = 7, 13


def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    scale = torch.bernoulli(x, 1 - p).div(1 - p)
    return x * scale, scale


def _dropout_backward(grad: Tensor, scale: Tensor, factor: float) -> Tensor:
    return grad * scale


#: Dropout as torch computes it on a CPU; a trace would have the operation of other devices.
_DROPOUT: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_dropout.default: _dropout,
    torch.ops.aten.native_dropout_backward.default: _dropout_backward,
}


def trace(joint: Joint, fuse: bool | None = False) -> Program:
    """A cell as straight-line code.

    Args:
        joint: the cell.
        fuse: whether kernels take the place of elementwise operations; None for where they are
            measured to be faster, on CUDA.

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
            make = _trace(joint)
            program = _agreeing(joint, make)
        except Untraceable as error:
            raise Untraceable(str(error)) from None  # what is kept of it holds no tensors
        except Exception as error:  # tracing runs foreign code on tensors without values
            raise Untraceable(first_line(error)) from None
        return choose(joint, program, make, fuse)


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


def _agreeing(joint: Joint, make: Make) -> Program:
    """The program with faster kernels, or without, if parts of torch within the cell have none."""
    for faster in (True, False):
        program = make(None, faster)
        if agrees(joint, program, torch.equal):
            return program
    raise Untraceable("its numbers differ from call to call, or from those of its trace")


def _trace(joint: Joint) -> Make:
    """What makes programs from the graph of a cell."""
    read = [_empty(slot, joint.cell.arity) for slot in joint.slots]
    parameters = [p.detach() for p in joint.parameters] * 2
    graph = open_graph(joint, read, parameters, output_grads(joint, GROUP_SIZE))
    # The slots outlive the batch that they were found in.
    slots = [slot._replace(like=slot.like[:0].clone()) for slot in joint.slots]
    return partial(make_program, graph, slots, len(parameters), joint.dtypes, joint.layout)


def open_graph(
    function: Callable[..., Any],
    rows: Sequence[Tensor],
    fixed: Sequence[Tensor] = (),
    more_rows: Sequence[Tensor] = (),
) -> fx.Graph:
    """The graph of a function (rows ..., fixed ..., more rows ...) of tensors.

    Args:
        function: the function.
        rows: tensors whose first size is left open; equal sizes stay equal, and GROUP_SIZE + 1,
            that of pointers, stays one more than GROUP_SIZE.
        fixed: tensors of just these sizes.
        more_rows: further tensors whose first size is left open.

    Raises:
        Untraceable: if the function depends on the open sizes.
    """
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
        if is_open and len(tensor) == GROUP_SIZE + 1:
            less = fake(tensor[:-1], is_open=True)
            with mode:
                return less.new_empty(less.shape[0] + 1, *less.shape[1:])
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if is_open:
            sizes[0] = DimDynamic.DUCK  # equal sizes are one size
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        return mode.from_tensor(tensor, symbolic_context=context)

    given = ((rows, True), (fixed, False), (more_rows, True))
    tensors = [fake(tensor, is_open) for part, is_open in given for tensor in part]
    on_cpu = all(tensor.is_cpu for tensor in tensors)
    decompositions = _DROPOUT if on_cpu else {}
    graph = make_fx(function, decompositions, tracing_mode="symbolic")(*tensors).graph
    if shapes.guards:
        raise Untraceable("its code depends on how many nodes are in a group")
    return graph


def _empty(slot: Slot, arity: int | None) -> Tensor:
    trailing = slot.like.shape[1:]
    if slot.per == "child" and arity is not None:
        return slot.like.new_empty(GROUP_SIZE, arity, *trailing)
    count = {"node": GROUP_SIZE, "edge": NUM_EDGES, "ptr": GROUP_SIZE + 1}[slot.per]
    return slot.like.new_empty(count, *trailing)


def _cuda_devices(joint: Joint) -> list[int]:
    devices = {slot.like.device for slot in joint.slots}
    return [
        device.index for device in devices if device.type == "cuda" and device.index is not None
    ]
