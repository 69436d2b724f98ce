"""A pass of compiled cells: a native call forward, one backward, one node of the autograd graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import is_batched
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.backward import CompiledBackward
from graphfold.batching.engine.compiled.compiled_pass import CompiledPass
from graphfold.batching.engine.compiled.frozen_weights import FrozenWeights
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.errors import EngineError

_kind = attrgetter("shape", "dtype", "device")


def run_compiled(
    inputs: PassInputs, cells: Mapping[int, CompiledCell], frozen: FrozenWeights | None = None
) -> dict[str, Tensor]:
    """Runs one Up or Down pass.

    Args:
        inputs: the pass.
        cells: op type -> the compiled cell.
        frozen: what is kept of the cells between calls, if anything is.

    Returns:
        field -> [num_rows + 1, width], rows in plan order; row 0 is what absent children read.
    """
    states = run_pass(CompiledPass(inputs, cells, frozen))
    return {**inputs.given, **dict(zip(inputs.fields, states, strict=True))}


def run_pass(run: CompiledPass) -> Sequence[Tensor]:
    """The results of a pass, under autograd if anything requires a gradient."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in run.tensors):
        results: Sequence[Tensor] = _Pass.apply(run, *run.tensors)  # type: ignore[no-untyped-call]
        return results
    states, _ = run.forward(run.tensors)
    return run.results(states)


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: CompiledPass, *tensors: Tensor) -> tuple[Tensor, ...]:
        states, kept = run.forward(tensors)
        # What backward reads is kept by autograd, which sees changes in place and frees it in time.
        read = [
            tensor if run.is_read_back(named) else None
            for named, tensor in zip(run.names, tensors, strict=True)
        ]
        saved = [*states, *read, *kept.values()]
        ctx.save_for_backward(*saved)
        ctx.kinds = [_kind(tensor) for tensor in saved if tensor is not None]
        ctx.run, ctx.kept = run, list(kept)
        ctx.set_materialize_grads(False)
        run.tensors = ()
        return tuple(run.results(states))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() or any(is_batched(grad) for grad in grads if grad is not None):
            raise EngineError(
                "compiled cells cannot be differentiated twice (create_graph=True), nor for many "
                "gradients at once (is_grads_batched=True, vectorize=True). Use run=eager "
                "(model.run=eager)."
            )
        run: CompiledPass = ctx.run
        if all(grad is None for grad in grads):  # a later pass took the states and read none
            return None, *[None] * len(run.names)
        saved, count = ctx.saved_tensors, len(run.fields) + len(run.names)
        _require_kinds(saved, ctx.kinds)
        kept = dict(zip(ctx.kept, saved[count:], strict=True))
        states, tensors = saved[: len(run.fields)], saved[len(run.fields) : count]
        return None, *CompiledBackward(run, states, tensors, kept, grads).run(
            ctx.needs_input_grad[1:]
        )


def _require_kinds(saved: Sequence[Tensor | None], kinds: Sequence[object]) -> None:
    """Raises EngineError unless hooks have handed back what was saved; layouts may differ."""
    unpacked = [_kind(tensor) for tensor in saved if tensor is not None]
    if unpacked == kinds:
        return
    before, after = next(pair for pair in zip(kinds, unpacked, strict=True) if pair[0] != pair[1])
    raise EngineError(
        f"a pass saved a tensor {_shown(before)} for backward, but got one {_shown(after)} back. "
        "Let saved_tensors_hooks unpack what they packed: the same shape, dtype and device."
    )


def _shown(kind: Any) -> str:
    shape, dtype, device = kind
    return f"of shape {list(shape)} and {dtype} on {device}"
