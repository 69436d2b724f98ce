"""Measuring: interleaved repetitions, medians, and rows that say what was measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

#: Repetitions of every variant, after one that is not counted.
REPETITIONS = 7


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Args:
        benchmark: the benchmark's name.
        variant: "graphfold" or a baseline.
        shape: "identical" or "random".
        batch_size: examples per batch.
        hidden_size: width of the state.
        phase: "train", "inference" or "schedule".
        threads: threads that torch used.
        examples_per_second: from the median time of a batch.
        ratio: examples per second over those of graphfold in the same run.
    """

    benchmark: str
    variant: str
    shape: str
    batch_size: int
    hidden_size: int
    phase: str
    threads: int
    examples_per_second: float
    ratio: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return asdict(self)


def median_seconds(variants: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each variant.

    The variants take turns, so that a machine whose speed drifts slows all of them alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for repetition in range(REPETITIONS + 1):
        for name, function in variants.items():
            start = time.perf_counter()
            function()
            if repetition:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}
