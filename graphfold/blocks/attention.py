"""Attention over a sequence, composed of other blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphfold.blocks.block import Block
from graphfold.blocks.compose import compose
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.function import Function
from graphfold.blocks.reductions import Max, Sum
from graphfold.blocks.sequences import Broadcast, Map, Zip


def Attention(score: Any, name: str | None = None) -> Block:
    """The mean of a sequence's elements, weighted by the softmax of their scores; zeros of none.

    Feed-forward attention: Raffel and Ellis (2015), https://arxiv.org/abs/1512.08756, equations 2
    to 4; the paper of Fold has it as an example of composition (section 3.5). For attention that
    depends on something else, let the elements be tuples (`Zip` with a `Broadcast`) and use
    `attend`.

    Args:
        score: from an element to its score, a scalar or a vector of one number.
        name: its name.

    Raises:
        BlockTypeError: if the score is not one number.
    """
    scorer = convert_to_block(score)
    return compose(lambda x: attend(Map(scorer)(x), x), name or "attention")


def attend(scores: Any, values: Any) -> Any:
    """Within `compose`: the mean of `values`, weighted by the softmax of `scores`.

    Args:
        scores: a sequence of scores, each a scalar or a vector of one number.
        values: a sequence of tensors, as many.
    """
    largest = Broadcast()(Max()(scores))
    weights = Map(Function(_exp_difference, "exp"))(Zip()(scores, largest))
    weighted = Map(Function(_scaled, "scale"))(Zip()(weights, values))
    return Function(_divided, "divide")(Sum()(weighted), Sum()(weights))


def _exp_difference(score: Tensor, largest: Tensor) -> Tensor:
    # Without the largest score nothing overflows; it cancels, so it needs no gradient.
    return torch.exp(score - largest.detach())


def _scaled(weight: Tensor, value: Tensor) -> Tensor:
    return weight.reshape(-1, *[1] * (value.dim() - 1)) * value


def _divided(total: Tensor, weight: Tensor) -> Tensor:
    weight = weight.reshape(-1, *[1] * (total.dim() - 1))
    return total / torch.where(weight == 0, torch.ones_like(weight), weight)
