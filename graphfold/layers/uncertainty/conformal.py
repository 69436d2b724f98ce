"""Conformal prediction and calibration of probabilities, from held-out predictions.

Conformal: the quantile of scores that new ones stay below, and scores of classes. Probabilities are
calibrated by a temperature or by isotonic regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from graphfold.errors import ConfigError


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


#: The least probability whose logarithm is taken.
_LEAST = 1e-12

#: Halvings of the interval that the temperature lies in: to the last bit of a float32.
_STEPS, _RANGE = 60, 100.0


def fit_temperature(probabilities: Tensor, classes: Tensor) -> float:
    """The temperature that makes true classes likeliest.

    Guo et al. (2017), https://arxiv.org/abs/1706.04599, section 4.2. The negative log likelihood is
    convex in 1 / T; the zero of its derivative, Σ (log p of the true class - expected log p), is
    found by halving, between 1/100 and 100. Where every true class is the likeliest one, no
    temperature is the best: the smaller, the likelier. There it is 1, which changes nothing.

    Shape:
        probabilities: [num_rows, num_classes]
        classes: [num_rows]
    """
    logits = _logits(probabilities.double())
    true = logits.gather(1, classes.unsqueeze(1)).squeeze(1)
    if bool((true == logits.max(1).values).all()):  # also if there is no row
        return 1.0
    low, high = torch.tensor([1 / _RANGE, _RANGE], dtype=torch.float64).log()
    for _ in range(_STEPS):
        middle = (low + high) / 2  # the logarithm of 1 / T
        expected = (torch.softmax(logits * middle.exp(), 1) * logits).sum(1)
        if (true - expected).sum() > 0:
            low = middle
        else:
            high = middle
    return float((-(low + high) / 2).exp())


def apply_temperature(probabilities: Tensor, temperature: Tensor) -> Tensor:
    """softmax(log p / T).

    Shape:
        probabilities, returned: [..., num_classes]
        temperature: what fits beside [...]
    """
    return torch.softmax(_logits(probabilities) / temperature.unsqueeze(-1), dim=-1)


def fit_isotonic(probability: Tensor, happened: Tensor) -> tuple[Tensor, Tensor]:
    """The increasing function that is nearest to what happened, as the corners of its graph.

    Zadrozny and Elkan (2002), https://doi.org/10.1145/775047.775151.

    Shape:
        probability: [num_rows]
        happened: [num_rows] bool
        returns: [num_corners] where the corners are, and their values

    Raises:
        ConfigError: if scikit-learn is not there.
    """
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise ConfigError(
            "calibration.method=isotonic needs scikit-learn. Install graphfold[sklearn], or use "
            "calibration.method=temperature."
        ) from error
    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit(probability.double().numpy(), happened.double().numpy())
    x, y = fitted.X_thresholds_, fitted.y_thresholds_
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


def apply_isotonic(probability: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The function through the corners (x, y), straight between them and flat beyond.

    Shape:
        probability, returned: [...]
        x, y: [num_corners], x increasing
    """
    if len(x) == 1:
        return y.expand(probability.shape)
    right = torch.searchsorted(x, probability.contiguous()).clamp(1, len(x) - 1)
    left = right - 1
    share = (probability - x[left]) / (x[right] - x[left])
    return y[left] + share.clamp(0, 1) * (y[right] - y[left])


def _logits(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=_LEAST).log()
