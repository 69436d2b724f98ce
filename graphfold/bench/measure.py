"""Measuring: variants take turns, medians, and rows that say what was measured."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import ceil
from statistics import quantiles
from typing import Any, NamedTuple, TypeVar

#: What a variant is called.
Name = TypeVar("Name", bound=Hashable)

#: The variants of a setting take turns for so many seconds, and take so many turns at least. With
#: half of it, the median of ten turns, ratios moved by 3 % from run to run.
SECONDS = 6.0
TURNS = 5

#: A quick variant is called again until its turn lasts this long: the clock then is exact enough.
#: Its turn begins with a call that is not counted, for what another left in the caches.
SECONDS_PER_TURN = 0.02


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Args:
        benchmark: the benchmark's name.
        variant: "graphfold" or a baseline.
        shape: "identical" or "random"; "" where that means nothing.
        batch_size: examples per batch.
        hidden_size: width of the state; 0 where no model takes part.
        phase: "train", "inference" or "schedule".
        threads: threads that torch used.
        examples_per_second: from the median time of a batch.
        ratio: examples per second over those of graphfold in the same run.
        spread: the interquartile range of the times over their median.
        extra: further keys of the row.
    """

    benchmark: str
    variant: str
    shape: str
    batch_size: int
    hidden_size: int
    phase: str
    threads: int
    examples_per_second: float = 0.0
    ratio: float = 1.0
    spread: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it: flat."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**own, **self.extra}


class Work(NamedTuple):
    """What a variant does in one call, and how many examples that deals with."""

    function: Callable[[], object]
    examples: float


class Timing(NamedTuple):
    """How long a call took."""

    seconds: float  # median over the turns
    spread: float  # interquartile range over the median


def measure(
    setting: Row,
    works: Mapping[str, Work],
    seconds: float | None = None,
    turns: int | None = None,
) -> Iterator[Row]:
    """A row for each variant of a setting; the one called graphfold gives the ratios.

    Args:
        setting: a row whose variant and figures are filled in.
        works: variant -> what it does.
        seconds: see `time_in_turns`.
        turns: see `time_in_turns`.
    """
    yield from measure_together([(setting, works)], seconds, turns)


def measure_together(
    settings: Sequence[tuple[Row, Mapping[str, Work]]],
    seconds: float | None = None,
    turns: int | None = None,
) -> Iterator[Row]:
    """The rows of several settings, all of whose variants take turns: so they can be compared.

    Args:
        settings: as `measure` takes them.
        seconds: for each setting; see `time_in_turns`.
        turns: see `time_in_turns`.
    """
    seconds = (SECONDS if seconds is None else seconds) * len(settings)
    functions = {
        (number, name): work.function
        for number, (_, works) in enumerate(settings)
        for name, work in works.items()
    }
    timings = time_in_turns(functions, seconds, turns)
    for number, (setting, works) in enumerate(settings):
        own = {name: timings[number, name] for name in works}
        speed = {name: works[name].examples / timing.seconds for name, timing in own.items()}
        for name, timing in own.items():
            yield replace(
                setting,
                variant=name,
                examples_per_second=speed[name],
                ratio=speed[name] / speed["graphfold"],
                spread=timing.spread,
            )


def time_in_turns(
    variants: Mapping[Name, Callable[[], object]],
    seconds: float | None = None,
    turns: int | None = None,
) -> dict[Name, Timing]:
    """Times every variant.

    They take turns, so that a machine whose speed drifts slows all of them alike, each time in
    another order, for what one leaves behind in memory and caches burdens or helps the next.

    Args:
        variants: name -> what is timed.
        seconds: how long to go on, after one turn that is not counted; `SECONDS` by default.
        turns: how many turns at least; `TURNS` by default.
    """
    turns = TURNS if turns is None else turns
    calls = {name: _calls_per_turn(function) for name, function in variants.items()}
    times: dict[Name, list[float]] = {name: [] for name in variants}
    order, names = random.Random(0), list(variants)
    end = time.perf_counter() + (SECONDS if seconds is None else seconds)
    done = 0
    with _quiet_collector():
        while done < turns or time.perf_counter() < end:
            for name in order.sample(names, len(names)):
                if calls[name] > 1:  # what others left in memory and caches is gone after a call
                    variants[name]()
                times[name].append(_seconds(variants[name], calls[name]) / calls[name])
            done += 1
    return {name: summarize(values) for name, values in times.items()}


def summarize(values: Sequence[float]) -> Timing:
    """The median of some times, at least two, and how far they spread."""
    low, middle, high = quantiles(values, n=4)
    return Timing(middle, (high - low) / middle)


def median_seconds(variants: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each variant; see `time_in_turns`."""
    return {name: timing.seconds for name, timing in time_in_turns(variants).items()}


def _calls_per_turn(function: Callable[[], object]) -> int:
    """Also the turn that is not counted: a first call allocates, compiles and loads."""
    if _seconds(function, 1) > SECONDS:
        return 1
    return max(1, ceil(SECONDS_PER_TURN / _seconds(function, 1)))


def _seconds(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - start


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Python's collector passes over what is there already, as it does in a training run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
