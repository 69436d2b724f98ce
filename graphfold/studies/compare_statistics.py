"""Tests of differences between models.

Over repetitions: analysis of variance and Tukey's HSD. Of single runs: a paired bootstrap of their
test records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphfold.errors import ConfigError, DataError
from graphfold.layers.heads.eval_rows import EvalRows

#: From rows to the metric; None where they leave it undefined.
Score = Callable[[EvalRows], "float | None"]

#: How often the records are drawn.
DRAWS = 2_000


def compare_records(
    rows: Sequence[EvalRows], scores: Sequence[Score], draws: int = DRAWS, seed: int = 0
) -> Comparison:
    """Differences of a metric between runs, over records drawn with replacement.

    All runs are scored on the same draw (Efron and Tibshirani 1993, chapter 16). Intervals are
    percentiles, and p twice the smaller share of draws on one side of zero, both adjusted for the
    number of pairs by Bonferroni's rule. It says how sure the order of these very runs is on other
    records of the kind; nothing of other seeds or training parts.

    Args:
        rows: of each run, the same records in the same order.
        scores: the metric of each run.
        draws: how often records are drawn.
        seed: of the draws.

    Raises:
        DataError: if the metric is undefined for more than half of the draws.
    """
    whole = np.array([score(part) for part, score in zip(rows, scores, strict=True)], dtype=float)
    generator = torch.Generator().manual_seed(seed)
    count = rows[0].num_graphs
    places = [_places(part) for part in rows]
    found = []
    for _ in range(draws):
        graphs = torch.randint(count, (count,), generator=generator)
        samples = [_take(part, place, graphs) for part, place in zip(rows, places, strict=True)]
        drawn = [score(sample) for score, sample in zip(scores, samples, strict=True)]
        if None not in drawn:
            found.append(drawn)
    if len(found) < draws / 2:
        raise DataError(
            f"the metric is undefined for {draws - len(found)} of {draws} draws of the {count} "
            "test records. Choose another --metric, or give more records."
        )
    values = np.array(found, dtype=float)
    pairs = list(combinations(range(len(rows)), 2))
    return Comparison(
        f"paired bootstrap over {count} test records",
        whole,
        values.std(0, ddof=1),
        tuple(_pair(a, b, whole, values, len(pairs)) for a, b in pairs),
    )


def _pair(first: int, second: int, whole: np.ndarray, values: np.ndarray, pairs: int) -> Pair:
    differences = values[:, second] - values[:, first]
    tail = (1 - LEVEL) / 2 / pairs
    lower, upper = np.quantile(differences, [tail, 1 - tail])
    side = min((differences <= 0).mean(), (differences >= 0).mean())
    p = min(1.0, pairs * 2 * max(float(side), 1 / len(differences)))
    difference = float(whole[second] - whole[first])
    return Pair(first, second, difference, float(lower), float(upper), p)


def _places(rows: EvalRows) -> tuple[Tensor, Tensor]:
    """The rows sorted by graph, and where those of each graph begin."""
    order = rows.graph.argsort(stable=True)
    counts = torch.bincount(rows.graph, minlength=rows.num_graphs)
    return order, torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])


def _take(rows: EvalRows, places: tuple[Tensor, Tensor], graphs: Tensor) -> EvalRows:
    """The rows of some graphs, which may come several times, numbered anew."""
    order, ptr = places
    counts = ptr.diff()[graphs]
    number = torch.repeat_interleave(torch.arange(len(graphs)), counts)
    within = torch.arange(len(number)) - (counts.cumsum(0) - counts)[number]
    at = order[ptr[graphs][number] + within]
    return replace(
        rows,
        prediction=rows.prediction[at],
        target=rows.target[at],
        loss=rows.loss[at],
        graph=number,
        is_root=rows.is_root[at],
        num_graphs=len(graphs),
    )


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
