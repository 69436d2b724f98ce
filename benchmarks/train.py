"""How long is an epoch, and what does `graphfold train` add to the steps?

Whole epochs with the model and the data of benchmark sst. Variants:

- `graphfold`: a loop over planned batches, each step as in benchmark sst, and nothing else;
- `untraced`: the same with the cells' own code (`model.run=eager`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `with_loader`: the loop over the loader, which selects and plans each batch;
- `graphfold_train`: the command's own epochs: callbacks, loader, logging, then the metrics of the
  validation part and the checkpoints.

An epoch of the command lasts from the line that it prints at the end of one epoch to the next, so
the first does not count, nor do reading the data and the final scores. All variants take the
records in a new order every time. Half of the loops run before the command and half after it,
because machines drift.

    python -m benchmarks train --batch-size 256
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks.experiment import Experiment, load_data, load_sized
from benchmarks.measure import EQUAL_ONCE, Row, Settings, Work, make_rows, summarize
from benchmarks.sst import HIDDEN_SIZES, OVERRIDES
from benchmarks.variants import ways_to_run
from graphfold.batching import Batch
from graphfold.recipe import start_run
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.run.run_folder import RunFolder

BATCH_SIZES = (256,)

#: Epochs that count; half of the loops run before the command.
EPOCHS = 6


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
    """
    own = [*OVERRIDES, f"trainer.max_epochs={EPOCHS + 1}"]
    data = load_data([*own, *settings.overrides], settings.config_dir)
    for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, BATCH_SIZES):
        experiment = load_sized(own, (hidden_size, batch_size), settings, data)
        half, num_graphs = EPOCHS // 2, len(data.split.train)
        before = _loops(experiment, range(half))
        command = _command(experiment.config)
        after = _loops(experiment, range(half, EPOCHS))
        seconds = {name: [*before[name], *after[name]] for name in before}
        seconds["graphfold_train"] = command
        works = {name: Work(lambda: None, num_graphs, EQUAL_ONCE) for name in seconds}
        timings = {name: summarize(found) for name, found in seconds.items()}
        setting = settings.row("train", batch_size, hidden_size, "train")
        yield from make_rows(setting, works, timings)


def _loops(experiment: Experiment, epochs: range) -> dict[str, list[float]]:
    """Variant -> the seconds of its epochs alone, after one that does not count."""
    network = experiment.model.network
    ways = ways_to_run(network)
    loops = {**ways, "with_loader": ways["graphfold"]}
    found: dict[str, list[float]] = {name: [] for name in loops}
    experiment.model.train()
    for way in ways.values():
        way.set(network)
        _epoch(experiment, experiment.loader())
    for epoch in epochs:
        for number, (name, way) in enumerate(loops.items()):
            way.set(network)
            loader = experiment.loader(1 + len(loops) * epoch + number)
            batches = loader if name == "with_loader" else list(loader)
            found[name].append(_epoch(experiment, batches))
    ways["graphfold"].set(network)
    return found


def _epoch(experiment: Experiment, batches: Iterable[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        experiment.step(batch)
    return time.perf_counter() - start


def _command(config: TrainingConfig) -> list[float]:
    """The seconds of each epoch of the command but the first."""
    clock = _EpochClock()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(clock):
        start_run(config, RunFolder(Path(folder) / "run"))
    return [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]


class _EpochClock(io.StringIO):
    """Collects what the command prints, and notes the time of each epoch's line."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def write(self, text: str) -> int:
        """Keeps the text."""
        if text.startswith("epoch "):
            self.ends.append(time.perf_counter())
        return super().write(text)
