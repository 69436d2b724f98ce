"""Integrated gradients: shares that add up to the difference from an empty input."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from graphfold.inference.explanation.explained import Explained
from graphfold.inference.explanation.gradient import gradients_at, times_input
from graphfold.inference.explanation.units import Units

#: Steps along the path, at first and at most; they are doubled until the shares add up.
FEWEST_STEPS, MOST_STEPS = 16, 256

#: The error of the sum of a graph's shares that is allowed, as a part of their absolute sum.
TOLERANCE = 0.02


def integrated_gradients(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the mean gradient between no input and the input, times the input.

    Equation 1 of Sundararajan et al. (2017), https://arxiv.org/abs/1703.01365, along the straight
    path from inputs of zero, by the midpoint rule. Completeness, their proposition 1: the shares of
    a graph add up to its number less that of zero inputs. It is checked: there are more steps while
    the sum is off by more than `TOLERANCE` somewhere, and a warning if it still is. What is then
    missing, if it is no more than that, is divided among the shares in proportion to their sizes.
    Edges keep their features along the path.
    """
    with torch.no_grad():
        difference = explained(explained.inputs) - explained.base()
    steps = FEWEST_STEPS
    while True:
        shares = _along_path(explained, units, steps)
        error, scale = _error(shares, units, difference)
        is_off = error.abs() > TOLERANCE * scale
        missing = is_off.any(1).nonzero().view(-1)
        if steps >= MOST_STEPS or not len(missing):
            break
        steps *= 2
    if len(missing):
        file, line = explained.batch.dag.place(int(missing[0]))
        warnings.warn(
            f"the contributions of {len(missing)} records, the first at {file}:{line}, do not add "
            f"up within {TOLERANCE:.0%} after {steps} steps. Take --explain masking to check them.",
            stacklevel=2,
        )
    correction = torch.where(is_off | (scale == 0), 0.0, error / scale)
    for kind in units.kinds:
        own = shares[kind.unit]
        shares[kind.unit] = own + own.abs() * correction[kind.graph]
    return shares


def _along_path(explained: Explained, units: Units, steps: int) -> Tensor:
    """The shares by the midpoint rule."""
    total = None
    for step in range(steps):
        scale = (step + 0.5) / steps
        inputs = {name: x * scale for name, x in explained.inputs.items()}
        _, gradients = gradients_at(explained, inputs)
        shares = times_input(gradients, units) / steps
        total = shares if total is None else total + shares
    assert total is not None
    return total


def _error(shares: Tensor, units: Units, difference: Tensor) -> tuple[Tensor, Tensor]:
    """[num_graphs, num_targets] what the sum of the shares lacks, and the sum of their sizes."""
    total, scale = torch.zeros_like(difference), torch.zeros_like(difference)
    for kind in units.kinds:
        own = shares[kind.unit]
        total.index_add_(0, kind.graph, own)
        scale.index_add_(0, kind.graph, own.abs())
    return difference - total, scale
