"""How long does one prediction take, from a text to its answer?

The model of benchmark sst, saved with its first weights and loaded by `graphfold.load`, in
evaluation mode. Each call has one tree of SST's test part, and the figures are of the median call;
trees differ in size, and so do the times that `spread` describes. The variants take turns, record
by record. With one tree there is little to share, but every plan computes equal nodes once, as the
plans of larger batches do. Variants:

- `graphfold`: `model.predict([text])` of a bracketed tree: read into a graph, its words looked up,
  planned, computed, described node by node; cells compiled where there is a C compiler;
- `untraced`: the same with the cells' own code (`model.fuse=false`);
- `from_graph`: `model.predict_graphs(graph)` of a graph that exists already;
- `planned`: the model alone, on a batch that exists already.

    graphfold bench predict
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import EQUAL_ONCE, Row, Work, make_rows, summarize
from graphfold.bench.settings import Settings
from graphfold.bench.sst import HIDDEN_SIZES, OVERRIDES
from graphfold.bench.variants import fuse_settings
from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.adapters.bracket_tree import BracketText
from graphfold.errors import ConfigError
from graphfold.training.prediction.predictor import Predictor, load
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


#: What a variant does with a record.
Call: TypeAlias = Callable[[Example], Any]


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width.

    Raises:
        ConfigError: if batch sizes are given, or the data are not trees in brackets.
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    if settings.batch_sizes:
        raise ConfigError("benchmark predict takes one record at a time. Leave out --batch-size.")
    data = load_data([*OVERRIDES, *settings.overrides])
    for sizes in settings.sizes(HIDDEN_SIZES, [1]):
        variants = Variants(load_sized(OVERRIDES, sizes, settings, data))
        variants.require_equal()
        for example in variants.examples[:WARM_UP]:
            for call in variants.calls.values():
                call(example)
        timings = {
            name: summarize(seconds)
            for name, seconds in _times(variants.calls, variants.examples).items()
        }
        works = {name: Work(lambda: None, 1, EQUAL_ONCE) for name in timings}
        setting = settings.row("predict", sizes[1], sizes[0], "inference")
        yield from make_rows(setting, works, timings)


class Variants:
    """The ways to predict one record.

    Args:
        experiment: the model, which is saved and loaded, and its data.
    """

    def __init__(self, experiment: Experiment) -> None:
        fuses = fuse_settings(experiment.model.network)
        self.predictors = _predictors(experiment, fuses)
        self.examples = list(self._read(Path(experiment.data.files[-1].path)))
        model = self.predictors["graphfold"]
        self.calls: Mapping[str, Call] = {
            **{name: partial(_predict, found) for name, found in self.predictors.items()},
            "from_graph": lambda example: model.predict_graphs(example.dag),
            "planned": self._planned,
        }

    def require_equal(self) -> None:
        """Raises RuntimeError if they give different probabilities for the first record."""
        example = self.examples[0]
        head = self.predictors["graphfold"].trained.model.head
        root = example.batch.dag.output_index
        found = {name: _probabilities(self.calls[name](example)[0]) for name in self.predictors}
        (described,) = self.calls["from_graph"](example)
        found["from_graph"] = _probabilities(described.to_dict())
        found["planned"] = head.decode(self._planned(example))["probabilities"][root].flatten()
        for name, got in found.items():
            if not torch.allclose(got, found["graphfold"], rtol=0, atol=TOLERANCE):
                raise RuntimeError(
                    f"variant {name} differs from graphfold, so their speeds cannot be compared"
                )

    def _read(self, path: Path) -> Iterator[Example]:
        model = self.predictors["graphfold"]
        for record in islice(model.adapter.records(path), NUM_RECORDS):
            if not isinstance(record.content, BracketText):
                raise ConfigError(
                    "benchmark predict reads trees in brackets. Leave out the overrides of data."
                )
            dag = read_records(model.adapter, path, [record]).dag
            encoded = model.trained.spec.encode(dag)
            yield Example(record.content.text, dag, model.trained.model.plan(encoded, share=True))

    @torch.no_grad()
    def _planned(self, example: Example) -> Tensor:
        raw: Tensor = self.predictors["graphfold"].trained.model(example.batch)
        return raw


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


def _predictors(experiment: Experiment, fuses: Mapping[str, bool | None]) -> dict[str, Predictor]:
    """Variant -> the model as it is loaded from a checkpoint."""
    checkpoint = Checkpoint(
        config=dict(experiment.config),
        **experiment.data.state_dict(),
        packages=[],
        state_dict=experiment.model.state_dict(),
        training_records=torch.empty(0, dtype=torch.int64),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ckpt"
        path.write_bytes(checkpoint.encode())
        found = {name: load(path) for name in fuses}
    for name, predictor in found.items():
        predictor.trained.model.network.fuse = fuses[name]
    return found


def _predict(predictor: Predictor, example: Example) -> list[dict[str, Any]]:
    return predictor.predict([example.text])


def _probabilities(prediction: Mapping[str, Any]) -> Tensor:
    """The probabilities of the root's classes."""
    return torch.tensor([*prediction["probabilities"].values()])
