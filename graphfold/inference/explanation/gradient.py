"""Gradient times input: the first-order share of each unit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphfold.inference.explanation.explained import Explained
from graphfold.inference.explanation.units import Units


def gradient_times_input(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the gradient at a unit's input times that input, summed.

    Shrikumar et al. (2016), https://arxiv.org/abs/1605.01713. The input is the encoder's vector of
    a node, a sum of embeddings. Edges have none, so that they get 0.
    """
    _, gradients = gradients_at(explained, explained.inputs)
    return times_input(gradients, units)


def gradients_at(
    explained: Explained, inputs: Mapping[str, Tensor]
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """[num_graphs, num_targets] the explained numbers, and for each target their gradients."""
    leaves = {name: x.detach().requires_grad_() for name, x in inputs.items() if x.shape[1]}
    with torch.enable_grad():
        numbers = explained({**inputs, **leaves})
    found = []
    for target in range(numbers.shape[1]):
        gradients = torch.autograd.grad(
            numbers[:, target].sum(),
            list(leaves.values()),
            retain_graph=target + 1 < numbers.shape[1],
            materialize_grads=True,
        )
        found.append(dict(zip(leaves, gradients, strict=True)))
    return numbers.detach(), found


def times_input(gradients: list[dict[str, Tensor]], units: Units) -> Tensor:
    """[num_units, num_targets] gradients times the shares of the input, summed by unit."""
    columns = []
    for by_type in gradients:
        total = next(iter(by_type.values())).new_zeros(units.count)
        for share in units.shares:
            total.index_add_(0, share.unit, (by_type[share.node_type] * share.values).sum(1))
        columns.append(total)
    return torch.stack(columns, dim=1)
