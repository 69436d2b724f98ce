"""What surrounds a training step: whole epochs of `graphfold train` against a bare loop.

The model, the data and the steps are those of benchmark sst. Variants:

- `graphfold`: a loop over planned batches, each step as in benchmark sst, and nothing else; equal
  nodes once;
- `with_loader`: the same loop over the loader, which selects and plans each batch; equal nodes
  once;
- `graphfold_train`: the command's own epochs: Lightning, loader, logging, then the metrics of the
  val part and the checkpoints; equal nodes once.

An epoch of the command lasts from one of the lines that it prints at their ends to the next, so the
first does not count, nor do reading the data and the final scores. All of them take the records in
a new order every time. Half of the loops run before the command and half after it, for machines
drift.

    graphfold bench train --batch-size 256
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphfold.batching import Batch
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import Row, summarize
from graphfold.bench.sst import HIDDEN_SIZES, OVERRIDES
from graphfold.training.loop.train import train
from graphfold.training.run.run_folder import RunFolder

BATCH_SIZES = (256,)

#: Epochs that count; of the loops half before the command.
EPOCHS = 6


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
    """
    own = [*OVERRIDES, f"trainer.max_epochs={EPOCHS + 1}"]
    data = load_data([*own, *overrides])
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in batch_sizes or BATCH_SIZES:
            experiment = load_sized(own, hidden_size, batch_size, overrides, data)
            setting = Row("train", "", "", batch_size, hidden_size, "train", threads)
            yield from _rows(setting, experiment)


def _rows(setting: Row, experiment: Experiment) -> Iterator[Row]:
    half = EPOCHS // 2
    before = list(_loops(experiment, range(half)))
    command = _command(experiment.config)
    after = list(_loops(experiment, range(half, EPOCHS)))
    alone, with_loader = zip(*before, *after, strict=True)
    timings = {
        "graphfold": summarize(alone),
        "with_loader": summarize(with_loader),
        "graphfold_train": summarize(command),
    }
    num_graphs = len(experiment.data.split.train)
    for variant, timing in timings.items():
        yield replace(
            setting,
            variant=variant,
            examples_per_second=num_graphs / timing.seconds,
            ratio=timings["graphfold"].seconds / timing.seconds,
            spread=timing.spread,
            extra={"seconds_per_epoch": timing.seconds},
        )


def _loops(experiment: Experiment, turns: range) -> Iterator[tuple[float, float]]:
    """The seconds of epochs without Lightning, bare and with the loader, each in another order.

    An epoch that is not counted comes first.
    """
    experiment.model.train()
    _epoch(experiment, experiment.loader(2 * EPOCHS))
    for turn in turns:
        alone = _epoch(experiment, list(experiment.loader(2 * turn)))
        yield alone, _epoch(experiment, experiment.loader(2 * turn + 1))


def _epoch(experiment: Experiment, batches: Iterable[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        experiment.step(batch)
    return time.perf_counter() - start


def _command(config: Mapping[str, Any]) -> list[float]:
    """The seconds of each epoch of the command but the first."""
    clock = _EpochClock()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(clock):
        train(config, RunFolder(Path(folder) / "run"))
    return [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]


class _EpochClock(io.StringIO):
    """Takes what the command prints, and notes when an epoch's line comes."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def write(self, text: str) -> int:
        """Keeps the text."""
        if text.startswith("epoch "):
            self.ends.append(time.perf_counter())
        return super().write(text)
