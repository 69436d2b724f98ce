"""The engine against the reference, on a model of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from graphfold.blocks.running.compiled import CompiledModel
from graphfold.blocks.running.results import Result


def verify(model: CompiledModel, examples: list[Any]) -> float:
    """The largest difference from the reference, in float64.

    Outputs, metrics and the gradients of all parameters are compared, for the sum of the squares of
    all that the model gives. The model itself stays as it is.

    Args:
        model: the model, with the engine and the policy that are in question.
        examples: a list of examples; a few will do.
    """
    with _in_float64(model):
        batch = model.batch(examples)
        engine = model.engine
        try:
            got = _all_numbers(model, batch)
            model.engine = "reference"
            want = _all_numbers(model, batch)
        finally:
            model.engine = engine
    differences = [(a - b).abs().max() for a, b in zip(got, want, strict=True) if a.numel()]
    return float(max(differences, default=torch.zeros(())))


def _all_numbers(model: CompiledModel, batch: Any) -> list[Tensor]:
    result = model.run(batch)
    tensors = [t.double() for t in all_tensors(result)]
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = sum((t.square().sum() for t in tensors), torch.zeros((), dtype=torch.float64))
    grads: Sequence[Tensor | None] = [None] * len(parameters)
    if parameters and loss.requires_grad:
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [*(t.detach() for t in tensors), *(torch.zeros(()) if g is None else g for g in grads)]


def all_tensors(result: Result) -> list[Tensor]:
    """The tensors of a result, outputs first."""
    return [*_flat_tensors(result.output), *result.metrics.values()]


def _flat_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat_tensors(item)


@contextmanager
def _in_float64(model: CompiledModel) -> Iterator[None]:
    """The model with parameters and buffers in float64, and as it was afterwards."""
    state = deepcopy(model.state_dict())
    dtypes = [t.dtype for t in [*model.parameters(), *model.buffers()]]
    training = model.training
    try:
        model.double().eval()
        yield
    finally:
        model.train(training)
        for tensor, dtype in zip([*model.parameters(), *model.buffers()], dtypes, strict=True):
            tensor.data = tensor.data.to(dtype)
        model.load_state_dict(state)
