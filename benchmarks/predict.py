"""How long does one prediction take, from a text to its answer?

The model of benchmark sst, saved with its first weights and loaded by `graphfold.load`, in
evaluation mode. Each call has one tree of SST's test part, and the figures are of the median call;
trees differ in size, and so do the times that `spread` describes. The variants take turns, record
by record. In one tree there is little to share, so every node is computed. Variants:

- `graphfold`: `model.predict([text])` of a bracketed tree: read into a graph, its words looked up,
  planned, computed, described node by node; cells compiled where there is a C compiler;
- `untraced`: the same with the cells' own code (`model.run=eager`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `from_graph`: `model.predict_graphs(graph)` of a graph that exists already;
- `planned`: the model alone, on a batch that exists already.

    python -m benchmarks predict
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from benchmarks.experiment import Experiment, load_data, load_sized
from benchmarks.measure import EVERY_NODE, Row, Settings, Work, make_rows, summarize
from benchmarks.sst import HIDDEN_SIZES, OVERRIDES
from benchmarks.variants import Way, ways_to_run
from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.bracket_tree import BracketText
from graphfold.errors import ConfigError
from graphfold.inference.predictor import Predictor, load
from graphfold.training.run.checkpoint import Checkpoint

#: Trees that are predicted, and how many of them come once before, while kernels are chosen.
NUM_RECORDS = 300
WARM_UP = 20

#: Of probabilities, which are written with few digits.
TOLERANCE = 1e-4


class Example(NamedTuple):
    """One record in the forms that the variants take."""

    text: str
    dag: TypedDAG  # as the adapter reads it
    batch: Batch  # encoded and planned


#: From a record to the root's probabilities by class, or its logits.
Call: TypeAlias = Callable[[Example], "Mapping[str, float] | Tensor"]


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width.

    Raises:
        ConfigError: if batch sizes are given, or the data are not trees in brackets.
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    if settings.batch_sizes:
        raise ConfigError("benchmark predict takes one record at a time. Leave out --batch-size.")
    data = load_data([*OVERRIDES, *settings.overrides], settings.config_dir)
    for sizes in settings.sizes(HIDDEN_SIZES, [1]):
        experiment = load_sized(OVERRIDES, sizes, settings, data)
        calls, examples = make_calls(experiment), read_examples(experiment)
        require_equal(calls, examples[0])
        _times(calls, examples[:WARM_UP])
        times = _times(calls, examples)
        timings = {name: summarize(seconds) for name, seconds in times.items()}
        works = {name: Work(lambda: None, 1, EVERY_NODE) for name in calls}
        setting = settings.row("predict", sizes[1], sizes[0], "inference")
        yield from make_rows(setting, works, timings)


def make_calls(experiment: Experiment) -> dict[str, Call]:
    """The variants, each with a model of its own."""
    ways = ways_to_run(experiment.model.network)
    found: dict[str, Call] = {}
    for name, way in ways.items():
        found[name] = partial(_from_text, load_saved(experiment, way))
    found["from_graph"] = partial(_from_graph, load_saved(experiment, ways["graphfold"]))
    found["planned"] = partial(_planned, load_saved(experiment, ways["graphfold"]))
    return found


def read_examples(experiment: Experiment) -> list[Example]:
    """The first records of the test part."""
    model, path = load_saved(experiment, Way()), Path(experiment.data.files[-1].path)
    found = []
    for record in islice(model.adapter.records(path), NUM_RECORDS):
        if not isinstance(record.content, BracketText):
            raise ConfigError(
                "benchmark predict reads trees in brackets. Leave out the overrides of data."
            )
        dag = read_records(model.adapter, path, [record]).dag
        batch = model.trained.model.plan(model.trained.spec.encode(dag))
        found.append(Example(record.content.text, dag, batch))
    return found


def load_saved(experiment: Experiment, way: Way) -> Predictor:
    """The model as it is loaded from a checkpoint."""
    checkpoint = Checkpoint(
        config=dict(experiment.config.mapping),
        **experiment.data.state_dict(),
        packages=[],
        state_dict=experiment.model.state_dict(),
        training_records=torch.empty(0, dtype=torch.int64),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ckpt"
        checkpoint.save(path)
        predictor = load(path)
    way.set(predictor.trained.model.network)
    return predictor


def require_equal(calls: Mapping[str, Call], example: Example) -> None:
    """Raises RuntimeError if the variants give different probabilities for a record."""
    found = {name: _probabilities(call(example)) for name, call in calls.items()}
    for name, got in found.items():
        if not torch.allclose(got, found["graphfold"], rtol=0, atol=TOLERANCE):
            raise RuntimeError(
                f"variant {name} differs from graphfold, so their speeds cannot be compared"
            )


def _probabilities(answer: Mapping[str, float] | Tensor) -> Tensor:
    if isinstance(answer, Tensor):
        return torch.softmax(answer, dim=-1)
    return torch.tensor([*answer.values()])


def _from_text(model: Predictor, example: Example) -> Mapping[str, float]:
    found: Mapping[str, float] = model.predict([example.text])[0]["probabilities"]
    return found


def _from_graph(model: Predictor, example: Example) -> Mapping[str, float]:
    found: Mapping[str, float] = model.predict_graphs(example.dag)[0].to_dict()["probabilities"]
    return found


@torch.no_grad()
def _planned(model: Predictor, example: Example) -> Tensor:
    logits: Tensor = model.trained.model(example.batch)
    return logits[example.batch.dag.output_index[0]]


def _times(calls: Mapping[str, Call], examples: Sequence[Example]) -> dict[str, list[float]]:
    """Variant -> the seconds of each record; the variants take turns in changing order."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, names = random.Random(0), list(calls)
    for example in examples:
        for name in order.sample(names, len(names)):
            start = time.perf_counter()
            calls[name](example)
            times[name].append(time.perf_counter() - start)
    return times
