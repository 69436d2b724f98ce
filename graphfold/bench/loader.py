"""The loader: how many examples per second it selects, plans and hands over.

An epoch of the training part of SST and of a corpus of molecules (Lipophilicity), without workers
and with two. The plans are of every node. Workers are started beforehand. The time is that of a
program that does nothing with the batches, so with workers it is also that of a program which
computes meanwhile.

    graphfold bench loader --batch-size 256
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from graphfold.batching import Pass, Rounds, Up
from graphfold.bench.experiment import load_data
from graphfold.bench.measure import Row, Work, measure
from graphfold.datasets.loading.data_module import DataModule
from graphfold.datasets.loading.loader import GraphLoader

BATCH_SIZES = (256,)

#: Variant -> its workers.
WORKERS = {"graphfold": 0, "two_workers": 2}

#: Passes over the part that a call makes, so that the first batch of an epoch weighs little.
EPOCHS = 3


class Source(NamedTuple):
    """What is loaded."""

    overrides: Sequence[str]
    passes: Sequence[Pass]


SOURCES: Mapping[str, Source] = {
    "sst": Source(("experiment=sst_tree_lstm",), (Up(),)),
    "lipophilicity": Source(("data=lipophilicity",), (Rounds("bond", 3),)),
}


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every corpus and batch size.

    Raises:
        GraphfoldError: if a corpus is not there.
    """
    for name, source in SOURCES.items():
        data = load_data([*source.overrides, *overrides])
        for batch_size in batch_sizes or BATCH_SIZES:
            data.batch_size = batch_size
            extra = {"workload": name}
            setting = Row("loader", "", "", batch_size, 0, "schedule", threads, extra=extra)
            works = {variant: _work(data, source, n) for variant, n in WORKERS.items()}
            yield from measure(setting, works)


def _work(data: DataModule, source: Source, num_workers: int) -> Work:
    data.num_workers = num_workers
    loader = data.loader("train", source.passes)
    return Work(lambda: _exhaust(loader), EPOCHS * len(data.split.train))


def _exhaust(loader: GraphLoader) -> None:
    for _ in range(EPOCHS):
        for _ in loader:
            pass
