"""Measuring: the settings and rows of a benchmark, and the timing: variants take turns."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import ceil
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple, TypeVar

import torch

from graphfold.errors import ConfigError, did_you_mean

#: What a variant is called.
Name = TypeVar("Name", bound=Hashable)

#: The variants of a setting take turns for so many seconds, and at least so many turns. With half
#: of it, the median of ten turns, ratios moved by 3 % from run to run.
SECONDS = 6.0
TURNS = 5

#: A fast variant is called repeatedly until its turn lasts this long, so that the clock is precise
#: enough. Such a turn begins with an untimed call, because another variant has left the caches.
SECONDS_PER_TURN = 0.02

#: What is computed of a batch: all of its nodes, or one of each class of equal nodes.
EVERY_NODE, EQUAL_ONCE = "every node", "equal nodes once"


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Args:
        benchmark: the benchmark's name.
        variant: "graphfold" or a baseline.
        shape: "identical" or "random" trees, or the model; "" where there is no choice.
        batch_size: examples per batch.
        hidden_size: width of the state; 0 where no model takes part.
        phase: "train", "inference", "schedule" or "read".
        threads: threads that torch used.
        examples_per_second: from the median time of a batch.
        ratio: examples per second over those of graphfold in the same run.
        spread: the interquartile range of the times over their median.
        computes: "every node", or "equal nodes once".
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
    computes: str = EVERY_NODE
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The row as a flat JSON object."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**own, **self.extra}


class Work(NamedTuple):
    """One call of a variant, and how many examples it processes."""

    function: Callable[[], object]
    examples: float
    computes: str = EVERY_NODE


class Timing(NamedTuple):
    """The time of a call."""

    seconds: float  # median over the turns
    spread: float  # interquartile range over the median


def measure(*settings: tuple[Row, Mapping[str, Work]]) -> Iterator[Row]:
    """Times the variants of one setting, or of several that are compared with each other.

    Args:
        settings: a row without variant and figures, and the work of each variant. The variants of
            all settings take turns; the one called "graphfold" is the base of the ratios.
    """
    functions = {
        (number, name): work.function
        for number, (_, works) in enumerate(settings)
        for name, work in works.items()
    }
    timings = time_in_turns(functions, SECONDS * len(settings))
    for number, (setting, works) in enumerate(settings):
        yield from make_rows(setting, works, {name: timings[number, name] for name in works})


def make_rows(
    setting: Row, works: Mapping[str, Work], timings: Mapping[str, Timing]
) -> Iterator[Row]:
    """A row for each variant of a setting."""
    speed = {name: work.examples / timings[name].seconds for name, work in works.items()}
    for name, work in works.items():
        yield replace(
            setting,
            variant=name,
            examples_per_second=speed[name],
            ratio=speed[name] / speed["graphfold"],
            spread=timings[name].spread,
            computes=work.computes,
        )


def time_in_turns(
    variants: Mapping[Name, Callable[[], object]], seconds: float, turns: int | None = None
) -> dict[Name, Timing]:
    """Times every variant.

    The variants take turns, so that a machine whose speed drifts slows all of them alike, and in a
    new order each time, because each one's memory and caches affect the next.

    Args:
        variants: name -> function to time.
        seconds: how long to go on, after one untimed turn.
        turns: the least number of turns; `TURNS` by default.
    """
    turns = TURNS if turns is None else turns
    calls = {name: _calls_per_turn(function) for name, function in variants.items()}
    times: dict[Name, list[float]] = {name: [] for name in variants}
    order, names = random.Random(0), list(variants)
    end = time.perf_counter() + seconds
    done = 0
    with _frozen_collector():
        while done < turns or time.perf_counter() < end:
            for name in order.sample(names, len(names)):
                if calls[name] > 1:
                    variants[name]()
                times[name].append(_seconds(variants[name], calls[name]) / calls[name])
            done += 1
    return {name: summarize(values) for name, values in times.items()}


def summarize(values: Sequence[float]) -> Timing:
    """The median of at least two times, and their relative interquartile range."""
    low, middle, high = quantiles(values, n=4)
    return Timing(middle, (high - low) / middle)


def _calls_per_turn(function: Callable[[], object]) -> int:
    """Also makes the untimed first call, which allocates, compiles and loads."""
    if _seconds(function, 1) > SECONDS:
        return 1
    return max(1, ceil(SECONDS_PER_TURN / _seconds(function, 1)))


def _seconds(function: Callable[[], object], calls: int) -> float:
    """The time of some calls, the work that they started on a GPU included."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter() - start


@contextmanager
def _frozen_collector() -> Iterator[None]:
    """Python's collector skips the objects that exist already, as it does in a training run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass(frozen=True)
class Settings:
    """The options of `python -m benchmarks`.

    Args:
        batch_sizes: in place of the benchmark's own, if there are any.
        hidden_sizes: likewise.
        shapes: the models or graphs to measure; all of the benchmark if there are none.
        threads: of torch.
        device: where models and batches are, "cpu" or "cuda".
        overrides: of the config, for benchmarks of an experiment.
        config_dir: a further folder of config files for these.
    """

    batch_sizes: Sequence[int] = ()
    hidden_sizes: Sequence[int] = ()
    shapes: Sequence[str] = ()
    threads: int = 1
    device: str = "cpu"
    overrides: Sequence[str] = ()
    config_dir: Path | None = None

    def sizes(
        self, hidden_sizes: Sequence[int], batch_sizes: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """(hidden size, batch size) of every model and batch; the arguments are the defaults."""
        yield from product(self.hidden_sizes or hidden_sizes, self.batch_sizes or batch_sizes)

    def chosen(self, shapes: Iterable[str]) -> list[str]:
        """Those of a benchmark's shapes that are to be measured.

        Raises:
            ConfigError: if it has not one that was asked for.
        """
        known = list(shapes)
        for shape in self.shapes:
            if shape not in known:
                hint = did_you_mean(shape, known)
                raise ConfigError(f"--shape has no '{shape}'.{hint} Use {', '.join(known)}.")
        return [shape for shape in known if not self.shapes or shape in self.shapes]

    def row(
        self, benchmark: str, batch_size: int, hidden_size: int, phase: str = "", **more: Any
    ) -> Row:
        """The part that the rows of one setting have in common; `more` are fields of `Row`."""
        shape = more.pop("shape", "")
        return Row(benchmark, "", shape, batch_size, hidden_size, phase, self.threads, **more)
