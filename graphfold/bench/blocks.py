"""A model of blocks against the same model of cells: the Tree-LSTM on the Stanford treebank.

The models are those of the experiments sst_blocks and sst_tree_lstm without dropout, with the same
weights. A step is as in benchmark sst. Blocks are lowered beforehand, which is done once for a
model and its data: the row of `blocks_lowering` is all of the training part. Variants, both with
the plan of `graphfold train`:

- `graphfold`: the blocks; equal nodes once;
- `cells`: the cells; equal nodes once.

    graphfold bench blocks --batch-size 25,256
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import Trainable, load_data, load_trainable, total_graphs
from graphfold.bench.measure import Row, Work, measure, time_in_turns
from graphfold.datasets.loading.data_module import DataModule
from graphfold.layers.model import Model

BATCH_SIZES = (25, 256)
HIDDEN_SIZES = (150,)

#: Batches that a call of a variant goes through, so that a figure does not hang on one of them.
NUM_BATCHES = 4

#: How often the training part is lowered.
LOWERINGS = 2

EXPERIMENTS = {"graphfold": "sst_blocks", "cells": "sst_tree_lstm"}


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every width and batch size, and for each width how long lowering takes.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if the two models compute different things.
    """
    data = load_data([f"experiment={EXPERIMENTS['cells']}", *overrides])
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        models = _models(hidden_size, overrides, data)
        for batch_size in batch_sizes or BATCH_SIZES:
            data.batch_size = batch_size
            setting = Row("blocks", "", "", batch_size, hidden_size, "", threads)
            yield from _variant_rows(setting, models)
        yield _lowering_row(replace(setting, phase="schedule"), models["graphfold"])


def _models(hidden_size: int, overrides: Sequence[str], data: DataModule) -> dict[str, Trainable]:
    own = ["model.dropout=0", f"model.hidden_size={hidden_size}"]
    words = {"graphfold": [], "cells": [f"model.encoder.size={hidden_size}"]}
    return {
        name: load_trainable([f"experiment={experiment}", *own, *words[name], *overrides], data)
        for name, experiment in EXPERIMENTS.items()
    }


def _variant_rows(setting: Row, models: Mapping[str, Trainable]) -> Iterator[Row]:
    _copy_weights(models["graphfold"].model, models["cells"].model)
    batches = {name: found.batches(NUM_BATCHES) for name, found in models.items()}
    results = {name: _results(found, batches[name][0]) for name, found in models.items()}
    require_equal("cells", results["cells"], results["graphfold"])
    for phase in ("train", "inference"):
        works = {name: _work(phase, found, batches[name]) for name, found in models.items()}
        yield from measure(replace(setting, phase=phase), works)


@torch.no_grad()
def _copy_weights(source: Model, target: Model) -> None:
    """Both have the same parameters, in the same order."""
    for one, other in zip(source.parameters(), target.parameters(), strict=True):
        other.copy_(one)


def _work(phase: str, trainable: Trainable, batches: Sequence[Batch]) -> Work:
    trainable.model.train(phase == "train")
    run = _train if phase == "train" else _infer
    return Work(partial(run, trainable, batches), total_graphs(batches))


def _train(trainable: Trainable, batches: Sequence[Batch]) -> None:
    for batch in batches:
        trainable.step(batch)


def _infer(trainable: Trainable, batches: Sequence[Batch]) -> None:
    with torch.no_grad():
        for batch in batches:
            trainable.model(batch)


def _results(trainable: Trainable, batch: Batch) -> list[Tensor]:
    raw = trainable.model(batch)
    loss = trainable.loss(raw, batch)
    return [raw, *torch.autograd.grad(loss, list(trainable.model.parameters()))]


def _lowering_row(setting: Row, blocks: Trainable) -> Row:
    dag, lower = blocks.data.encoded("train"), blocks.model.lowering
    assert lower is not None
    timing = time_in_turns({"lower": lambda: lower(dag, 0)}, 0.0, LOWERINGS)
    seconds, spread = timing["lower"]
    return replace(
        setting,
        benchmark="blocks_lowering",
        variant="graphfold",
        examples_per_second=dag.num_graphs / seconds,
        spread=spread,
        extra={"seconds": seconds},
    )
