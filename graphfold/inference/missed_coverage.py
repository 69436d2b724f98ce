"""Sentences about intervals and sets that hold fewer true values than they promise."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from graphfold.layers import Head
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.uncertainty.class_head import CalibratedClassHead
from graphfold.layers.uncertainty.conformal import conformal_rank
from graphfold.layers.uncertainty.interval_head import IntervalHead
from graphfold.metrics.interval import is_inside

#: What is so unlikely that it is no chance.
UNLIKELY = 1e-3


def missed_coverage(head: Head, rows: Mapping[str, EvalRows]) -> list[str]:
    """One sentence for each target whose coverage on test misses the level by far.

    "By far" is a coverage that records like those of the calibration have with a probability below
    `UNLIKELY`.

    Args:
        head: what predicted; one without calibrated intervals or sets gives no sentence.
        rows: part -> its predictions and targets.
    """
    # The nodes of one graph are not drawn one by one, so their number proves less.
    if "test" not in rows or head.level != "graph":
        return []
    test, found = rows["test"], []
    if isinstance(head, IntervalHead):
        inputs = head.uncertainty_inputs("interval", test.prediction, test.target)
        inside = {name: is_inside(*both) for name, both in inputs.items()}
        what, those, fault = "values", "interval", "intervals are too narrow"
    elif isinstance(head, CalibratedClassHead) and head.sets:
        inputs = head.uncertainty_inputs("sets", test.prediction, test.target)
        inside = {n: sets.gather(1, y.unsqueeze(1)).squeeze(1) for n, (sets, y) in inputs.items()}
        what, those, fault = "classes", "set", "sets are too small"
    else:
        return []
    for (name, hits), calibrated in zip(inside.items(), head.counts.tolist(), strict=True):
        count, total = int(hits.sum()), len(hits)
        if total and coverage_chance(count, total, calibrated, head.share) < UNLIKELY:
            found.append(
                f"test: {count / total:.0%} of the true {what} of {name} ({count} of {total}) are "
                f"in their {head.share:.0%} {those}. That is no chance: the test records are "
                f"unlike those of the validation part, and on such records {fault}."
            )
    return found


def coverage_chance(count: int, total: int, calibrated: int, level: float) -> float:
    """The probability that at most `count` of `total` new records are covered.

    New records come from where those of the calibration come from. The share that is covered has
    then a beta distribution, see Vovk (2012), https://arxiv.org/abs/1209.2673, proposition 2a, and
    so the number of records a beta-binomial one, with r of `conformal_rank` and r' = calibrated + 1
    - r as its parameters.

    Args:
        count: how many are covered.
        total: how many there are.
        calibrated: how many records the quantile was taken from.
        level: the probability that was asked for.
    """
    rank = conformal_rank(calibrated, level)
    if rank > calibrated:
        return 1.0  # everything is covered
    a, b = float(rank), float(calibrated + 1 - rank)
    hits = torch.arange(count + 1, dtype=torch.float64)
    logs = _log_beta(hits + a, total - hits + b) - _log_beta(torch.tensor(a), torch.tensor(b))
    logs -= _log_beta(hits + 1, total - hits + 1) + math.log(total + 1)  # 1 / binomial coefficient
    return min(float(logs.exp().sum()), 1.0)


def _log_beta(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = a.double(), b.double()
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
