"""Conformal prediction: the quantile of scores that new ones stay below, and scores of classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def least_records(level: float) -> int:
    """The number of scores that a finite conformal quantile takes: 9 for 0.9, 19 for 0.95."""
    return math.ceil(level / (1 - level) - 1e-9)


def conformal_quantile(scores: Tensor, level: float) -> float:
    """The score that a new one does not exceed with a probability of at least `level`.

    It is the ⌈(n + 1) level⌉-th smallest of n scores, see Angelopoulos and Bates (2021),
    https://arxiv.org/abs/2107.07511, section 1; infinite if there are too few. The only
    assumption is that the new record and the n come from one source, in any order.

    Shape:
        scores: [n]
    """
    rank = conformal_rank(len(scores), level)
    if rank > len(scores):
        return math.inf
    return float(scores.double().kthvalue(rank).values)


def conformal_rank(num_scores: int, level: float) -> int:
    """The place of the quantile among some scores, counted from 1, the least one."""
    return max(math.ceil((num_scores + 1) * level - 1e-9), 1)


def lac_scores(probabilities: Tensor) -> Tensor:
    """1 - p: the sets with the fewest classes on average, Sadinle et al. (2019).

    https://doi.org/10.1080/01621459.2017.1395341

    Shape:
        probabilities, returned: [num_rows, num_classes]
    """
    return 1 - probabilities


def aps_scores(probabilities: Tensor) -> Tensor:
    """The probability of all likelier classes, and half the own one: sets that adapt to the row.

    Romano et al. (2020), https://arxiv.org/abs/2006.02544, equation 7. Difference: in place of a
    random number between 0 and 1 stands its mean, so sets are the same every time. (With a whole
    own probability the least likely class has the score 1 in every row, and where more rows than
    1 - level have this class, every set has every class: of yes and no, always both.)

    Shape:
        probabilities, returned: [num_rows, num_classes]
    """
    return whole_aps_scores(probabilities) - probabilities / 2


def whole_aps_scores(probabilities: Tensor) -> Tensor:
    """The probability of all classes that are at least as likely: `aps` of earlier versions.

    Shape:
        probabilities, returned: [num_rows, num_classes]
    """
    ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
    return torch.empty_like(probabilities).scatter_(1, order, ordered.cumsum(1))


#: The scores of classes by name; a class whose score is low may be true.
SET_SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "lac": lac_scores,
    "aps": aps_scores,
    "whole_aps": whole_aps_scores,
}

#: Those that `calibration.sets` may name.
SETS = ("lac", "aps")
