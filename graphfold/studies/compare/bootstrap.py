"""A paired bootstrap: what the test records say of single runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from graphfold.errors import DataError
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.studies.compare.statistics import LEVEL, Comparison, Pair

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
