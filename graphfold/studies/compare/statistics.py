"""Tests of differences between models: analysis of variance and Tukey's HSD over repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfold.errors import ConfigError, DataError

Array: TypeAlias = NDArray[np.float64]

#: Of intervals and, as its complement, of tests.
LEVEL = 0.95


@dataclass(frozen=True)
class Anova:
    """One analysis of variance: is any model different?"""

    statistic: float  # F
    degrees: tuple[int, int]  # of freedom, of the models and of the error
    p: float


@dataclass(frozen=True)
class Pair:
    """The difference between two models."""

    first: int
    second: int
    difference: float  # second minus first
    lower: float  # of its simultaneous interval
    upper: float
    p: float  # adjusted for the number of pairs


@dataclass(frozen=True, eq=False)
class Comparison:
    """Differences between some models, as far as they can be told."""

    method: str  # a phrase for a sentence
    means: Array  # [num_models]
    deviations: Array  # [num_models]
    pairs: tuple[Pair, ...]  # every two models
    anova: Anova | None = None
    half_width: float | None = None  # of the intervals that overlap unless two models differ

    def pair(self, first: int, second: int) -> Pair:
        """The difference of two models, in this order."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.first, pair.second) == (second, first):
                bounds = -pair.upper, -pair.lower
                return Pair(first, second, -pair.difference, *bounds, pair.p)
        raise IndexError(f"no pair of {first} and {second}")


def compare_means(values: Array, repeated: bool) -> Comparison:
    """Tukey's HSD (Tukey 1949) of the means of models, with the analysis of variance before it.

    With `repeated` a repetition (a split) is a block: what is easy or hard about it is taken out of
    the error (two-way analysis without interaction), as in the guidelines of Ash et al. (2025),
    https://doi.org/10.1021/acs.jcim.5c01609. Otherwise runs of different models have nothing in
    common, and the error is that within models.

    Args:
        values: [num_repetitions, num_models], two or more of each.
        repeated: whether the rows of `values` are blocks.

    Raises:
        DataError: if there is no error to test against: the models' differences never vary.
    """
    stats = scipy_stats()
    count, models = values.shape
    means = values.mean(0)
    residuals = values - means
    degrees = models * (count - 1)
    if repeated:
        residuals = residuals - residuals.mean(1, keepdims=True)
        degrees = (models - 1) * (count - 1)
    error = float((residuals**2).sum()) / degrees
    if error <= np.finfo(float).eps * float((values**2).mean()):
        raise DataError(
            "the differences between the models are the same in every repetition, so there is no "
            "error to test them against. Are they copies of the same runs?"
        )
    between = count * float(((means - means.mean()) ** 2).sum()) / (models - 1)
    p = float(stats.f.sf(between / error, models - 1, degrees))
    test = Anova(between / error, (models - 1, degrees), p)
    scale = float(np.sqrt(error / count))  # of a studentised range
    reach = float(stats.studentized_range.ppf(LEVEL, models, degrees)) * scale
    pairs = []
    for first, second in combinations(range(models), 2):
        difference = float(means[second] - means[first])
        p = float(stats.studentized_range.sf(abs(difference) / scale, models, degrees))
        pairs.append(Pair(first, second, difference, difference - reach, difference + reach, p))
    name = "repeated-measures" if repeated else "one-way"
    return Comparison(
        f"{name} ANOVA, Tukey HSD", means, values.std(0, ddof=1), tuple(pairs), test, reach / 2
    )


def scipy_stats() -> Any:
    """The module scipy.stats.

    Raises:
        ConfigError: if SciPy is not installed.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise ConfigError(
            f"graphfold compare needs SciPy ({error}). Install graphfold[baselines]."
        ) from error
    return stats
