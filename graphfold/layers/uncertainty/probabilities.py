"""Calibration of probabilities: temperature scaling and isotonic regression."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.errors import ConfigError

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
            "calibration.method=isotonic needs scikit-learn. Install graphfold[baselines], or use "
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
