"""What does it cost to write a model as blocks?

The Tree-LSTM on the Stanford Sentiment Treebank, once of blocks and once of cells: the models of
the experiments sst_blocks and sst_tree_lstm without dropout, with the same weights. A training step
is as in benchmark sst. Blocks are lowered beforehand, which is done once for a model and its data;
the phase `schedule` is the lowering of the training part. Variants, both with the plan of
`graphfold train`:

- `graphfold`: the blocks;
- `cells`: the cells.

    graphfold bench blocks --batch-size 25,256
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from graphfold.bench.experiment import Experiment, load_data, load_experiment
from graphfold.bench.measure import EQUAL_ONCE, Row, Settings, Work, make_rows, time_in_turns
from graphfold.bench.variants import Contest, Variant, measure_variants, require_equal
from graphfold.datasets.data_module import DataModule

BATCH_SIZES = (25, 256)
HIDDEN_SIZES = (150,)

#: Batches that a call of a variant goes through, so that a figure does not depend on one of them.
NUM_BATCHES = 4

#: How often the training part is lowered.
LOWERINGS = 2

EXPERIMENTS = {"graphfold": "sst_blocks", "cells": "sst_tree_lstm"}


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size, and for each width how long lowering takes.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if the two models compute different things.
    """
    own = [f"experiment={EXPERIMENTS['cells']}", *settings.overrides]
    data = load_data(own, settings.config_dir)
    for hidden_size in settings.hidden_sizes or HIDDEN_SIZES:
        models = load_models(hidden_size, settings, data)
        for batch_size in settings.batch_sizes or BATCH_SIZES:
            data.batch_size = batch_size
            copy_weights(models)  # again, because steps were taken
            doubled = {name: experiment.double() for name, experiment in models.items()}
            require_equal(make_variants(doubled, 1))
            setting = settings.row("blocks", batch_size, hidden_size)
            yield from measure_variants(Contest(setting, make_variants(models, NUM_BATCHES), {}))
        yield from _lowering_rows(replace(setting, phase="schedule"), models["graphfold"])


def load_models(hidden_size: int, settings: Settings, data: DataModule) -> dict[str, Experiment]:
    """Both models, freshly initialised."""
    own = ["model.dropout=0", f"model.hidden_size={hidden_size}"]
    words = {"graphfold": [], "cells": [f"model.encoder.size={hidden_size}"]}
    own += settings.overrides
    return {
        name: load_experiment(
            [f"experiment={experiment}", *words[name], *own], data, config_dir=settings.config_dir
        )
        for name, experiment in EXPERIMENTS.items()
    }


@torch.no_grad()
def copy_weights(models: Mapping[str, Experiment]) -> None:
    """Gives both models the same weights; they have equal parameters in the same order."""
    source, target = (models[name].model.parameters() for name in ("graphfold", "cells"))
    for one, other in zip(source, target, strict=True):
        other.copy_(one)


def make_variants(models: Mapping[str, Experiment], num_batches: int) -> dict[str, Variant]:
    """Both variants, each with batches of its own plan."""
    return {
        name: one.variant(one.model, one.batches(num_batches), EQUAL_ONCE)
        for name, one in models.items()
    }


def _lowering_rows(setting: Row, blocks: Experiment) -> Iterator[Row]:
    dag, lower = blocks.data.encoded("train"), blocks.model.lowering
    assert lower is not None
    works = {"graphfold": Work(lambda: lower(dag, 0), dag.num_graphs)}
    timings = time_in_turns({name: work.function for name, work in works.items()}, 0.0, LOWERINGS)
    yield from make_rows(setting, works, timings)
