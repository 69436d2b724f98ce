"""One record at a time: from the text of a tree to its prediction, as a program asks for it.

The model of benchmark sst, saved with its first weights and loaded by `graphfold.load`, in
evaluation mode. Each call has one tree of SST's test part, and the figures are of the median call;
`milliseconds` is the same as a time; trees differ in size, and so do the times that `spread` is of.
The variants take turns, record by record. With one tree there is little to share, but what the
library does for larger batches it does here:

- `graphfold`: `model.predict([text])` of a bracketed tree: read into a graph, its words looked up,
  planned, computed, described node by node; cells compiled where there is a C compiler; equal nodes
  once;
- `untraced`: the same with the cells' own code (model.fuse=false); equal nodes once;
- `logits`: no text and no description: a tree of Python lists is written by `GraphBuilder`, its
  words are looked up, it is planned and run to the classifier's outputs; equal nodes once;
- `planned`: the model alone, of a batch that is there beforehand; equal nodes once.

    graphfold bench predict
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.bench.engine_variants import fusions
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import Row, summarize
from graphfold.bench.sst import HIDDEN_SIZES, OVERRIDES
from graphfold.dag import GraphBuilder, Schema, TypedDAG
from graphfold.datasets.adapters.bracket_tree import BracketText, read_tree
from graphfold.errors import ConfigError
from graphfold.training.prediction.predictor import Predictor, load
from graphfold.training.run.checkpoint import Checkpoint

#: Trees that are predicted, and how many of them come once before, in which kernels settle.
NUM_RECORDS = 300
WARM_UP = 20

#: A word, or the trees below a phrase.
Tree: TypeAlias = "str | Sequence[Tree]"

#: What a variant does with a record.
Call: TypeAlias = "Callable[[Example], object]"


@dataclass(frozen=True, eq=False)
class Example:
    """One record in the forms that the variants take."""

    text: str
    tree: Tree
    batch: Batch


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every width.

    Raises:
        ConfigError: if batch sizes are given, or the data are not trees in brackets.
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    if batch_sizes:
        raise ConfigError("benchmark predict takes one record at a time. Leave out --batch-size.")
    data = load_data([*OVERRIDES, *overrides])
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        experiment = load_sized(OVERRIDES, hidden_size, 1, overrides, data)
        setting = Row("predict", "", "", 1, hidden_size, "inference", threads)
        yield from _variant_rows(setting, Variants(experiment))


class Variants:
    """The ways to predict one record.

    Args:
        experiment: the model, which is saved and loaded, and its data.
    """

    def __init__(self, experiment: Experiment) -> None:
        fuses = fusions(experiment.model.network)
        self.predictors = _predictors(experiment, fuses)
        self.predictor = self.predictors["graphfold"]
        self.examples = list(self._read(Path(experiment.data.files[-1].path)))
        self.calls: Mapping[str, Call] = {
            **{name: partial(_predict, found) for name, found in self.predictors.items()},
            "logits": self._logits,
            "planned": self._planned,
        }

    def require_equal(self) -> None:
        """Raises RuntimeError if they say different things of the root of the first record."""
        example = self.examples[0]
        dag = self._write(example.tree)
        found = {
            name: _probabilities(predictor.predict([example.text])[0])
            for name, predictor in self.predictors.items()
        }
        found["logits"] = self._decode(self._logits(example), dag)
        found["planned"] = self._decode(self._planned(example), example.batch.dag)
        for name, got in found.items():
            require_equal(name, [got], [found["graphfold"]])

    def _read(self, path: Path) -> Iterator[Example]:
        for record in islice(self.predictor.adapter.records(path), NUM_RECORDS):
            if not isinstance(record.content, BracketText):
                raise ConfigError(
                    "benchmark predict reads trees in brackets. Leave out the overrides of data."
                )
            text, tree = record.content.text, nested_tree(record.content)
            if self.predictor.share == "auto":
                self.predictor.predict([text])  # settles whether plans share
            yield Example(text, tree, self._plan(self._write(tree)))

    def _write(self, tree: Tree) -> TypedDAG:
        return write_tree(tree, self.predictor.adapter.schema)

    def _plan(self, dag: TypedDAG) -> Batch:
        trained = self.predictor.trained
        batch = trained.model.plan(trained.spec.encode(dag), share=bool(self.predictor.share))
        return batch.to(trained.device)

    @torch.no_grad()
    def _logits(self, example: Example) -> Tensor:
        raw: Tensor = self.predictor.trained.model(self._plan(self._write(example.tree)))
        return raw

    @torch.no_grad()
    def _planned(self, example: Example) -> Tensor:
        raw: Tensor = self.predictor.trained.model(example.batch)
        return raw

    def _decode(self, raw: Tensor, dag: TypedDAG) -> Tensor:
        """What raw outputs say of the root."""
        head = self.predictor.trained.model.head
        return head.decode(raw).cpu()[dag.output_index[0]]


def _variant_rows(setting: Row, variants: Variants) -> Iterator[Row]:
    variants.require_equal()
    for example in variants.examples[:WARM_UP]:
        for call in variants.calls.values():
            call(example)
    times = _times(variants.calls, variants.examples)
    timings = {name: summarize(seconds) for name, seconds in times.items()}
    for name, timing in timings.items():
        yield replace(
            setting,
            variant=name,
            examples_per_second=1 / timing.seconds,
            ratio=timings["graphfold"].seconds / timing.seconds,
            spread=timing.spread,
            extra={"milliseconds": 1e3 * timing.seconds},
        )


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
    """What a prediction says of the root."""
    return torch.tensor([*prediction["probabilities"].values()])


def nested_tree(source: BracketText) -> Tree:
    """A tree in brackets as Python lists of words."""
    found: list[Tree] = []
    for _, word, children, _ in read_tree(source, drops_outer=False).nodes():
        found.append([found[child] for child in children] if word is None else word)
    return found[-1]


def write_tree(tree: Tree, schema: Schema) -> TypedDAG:
    """A tree of Python lists as a graph; the root comes last."""
    builder = GraphBuilder(schema)
    todo: list[tuple[Tree, bool]] = [(tree, False)]
    made: list[int | None] = []
    while todo:
        item, is_below_made = todo.pop()
        if isinstance(item, str):
            made.append(builder.node("word", form=item))
        elif is_below_made:
            children = made[-len(item) :]
            del made[-len(item) :]
            absent = [None] * (2 - len(item))
            made.append(builder.node("phrase", [*children, *absent]))
        else:
            todo.append((item, True))
            todo += [(child, False) for child in reversed(item)]
    builder.output(builder.num_nodes - 1)
    builder.finish()
    return builder.build()
