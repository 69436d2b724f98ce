"""Comparison of the engine with the reference, on a model of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from graphfold.blocks.running.compiled import CompiledModel
from graphfold.dag import TypedDAG, split
from graphfold.layers.model import attribute_set


def verify(model: CompiledModel, examples: list[Any]) -> float:
    """The largest difference from the reference, in float64.

    The reference computes one example at a time, so a function that reads other examples of the
    batch differs. Outputs, metrics, and the gradients of the sum of their squares with respect to
    all parameters are compared. The model itself is not changed.

    Args:
        model: the model, with its engine and policy.
        examples: a list of examples; a few are enough.
    """
    with _in_float64(model):
        graphs = model.lower(examples)
        got = _all_numbers(model, [graphs])
        with attribute_set([model], "run", "reference"), attribute_set([model], "share", False):
            want = _all_numbers(model, split(graphs) or [graphs])
    differences = [(a - b).abs().max() for a, b in zip(got, want, strict=True) if a.numel()]
    return float(max(differences, default=torch.zeros(())))


def _all_numbers(model: CompiledModel, graphs: Sequence[TypedDAG]) -> list[Tensor]:
    """The results for batches that are computed one by one, joined; then the gradients."""
    results = [model.result(model.batch(dag)) for dag in graphs]
    metrics = {name: _joined([r.metrics[name] for r in results]) for name in results[0].metrics}
    output = _joined([result.output for result in results])
    tensors = [t.double() for t in (*_flat_tensors(output), *metrics.values())]
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = sum((t.square().sum() for t in tensors), torch.zeros((), dtype=torch.float64))
    grads: Sequence[Tensor | None] = [None] * len(parameters)
    if parameters and loss.requires_grad:
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [*(t.detach() for t in tensors), *(torch.zeros(()) if g is None else g for g in grads)]


def _joined(values: Sequence[Any]) -> Any:
    """Joins the outputs of batches to the output of one batch; see `Result.output`."""
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(list(values))
    if isinstance(first, tuple):
        return tuple(map(_joined, zip(*values, strict=True)))
    return first if first is None else [item for value in values for item in value]


def _flat_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat_tensors(item)


@contextmanager
def _in_float64(model: CompiledModel) -> Iterator[None]:
    """Puts a model in float64 and evaluation mode for a block; restores it afterwards."""
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
