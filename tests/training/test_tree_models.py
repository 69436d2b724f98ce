"""Every tree model of the literature trains on the corpora that it is for, with compiled cells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.experiment import load_experiment
from graphfold.batching import Down, Up
from graphfold.batching.native.library import why_missing
from graphfold.errors import ConfigError

CONSTITUENTS = (
    "rntn",
    "mv_rnn",
    "attentive_tree_lstm",
    "tree_convolution",
    "fold_tree_lstm",
    "bidirectional_tree_lstm",
    "sequence_tree_lstm",
)
DEPENDENCIES = (
    "relation_tree_lstm",
    "attentive_tree_lstm",
    "tree_convolution",
    "bidirectional_tree_lstm",
    "sequence_child_sum_tree_lstm",
)
RUNS = [
    ("sst_tree_lstm", "mv_rnn", ()),
    ("sst_tree_lstm", "sequence_tree_lstm", ()),
    ("ud_upos", "relation_tree_lstm", ()),
    ("ud_upos", "tree_convolution", ()),
]
#: The others, whose cells the contracts have seen: these take a minute.
MORE = [("sst_tree_lstm", model, ()) for model in CONSTITUENTS]
MORE += [("ud_upos", model, ()) for model in DEPENDENCIES]
MORE += [
    ("ud_upos", "relation_tree_lstm", ("model.cells.0._inner_.bases=4",)),
    ("sick_tree_lstm", "relation_tree_lstm", ()),
    ("sst_tree_lstm", "binary_tree_lstm", ("model.layers=2",)),
    ("ud_upos", "child_sum_tree_lstm", ("model.layers=3",)),
]
CASES = [pytest.param(*run, id="-".join(run[:2])) for run in RUNS]
CASES += [
    pytest.param(*run, id="-".join((*run[:2], *run[2])), marks=pytest.mark.slow)
    for run in MORE
    if run not in RUNS
]


@pytest.mark.parametrize(("experiment", "model", "more"), CASES)
def test_it_learns(experiment: str, model: str, more: tuple[str, ...], corpora: Path) -> None:
    own = [f"experiment={experiment}", f"model={model}", "model.hidden_size=8", "data.batch_size=8"]
    if why_missing(torch.float32) is None:
        own.append("model.run=compiled")  # an error unless all cells are compiled
    torch.manual_seed(1)
    loaded = load_experiment([*own, f"data.root={corpora}", "model.dropout=0", *more])
    (batch,) = loaded.batches(1)
    losses = []
    for _ in range(8):
        losses.append(loaded.loss(loaded.model(batch), batch).item())
        loaded.step(batch)
    assert min(losses[4:]) < losses[0]


def test_layers_are_passes_over_the_one_before(corpora: Path) -> None:
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", f"data.root={corpora}"]
    model = load_experiment([*own, "model.layers=3"]).graph_model
    assert model.passes == (Up(), Up(), Up())
    owns = [cells["phrase"][0].own for cells in model.network.cells]
    assert owns == [(), ("h",), ("h",)]


@pytest.mark.parametrize("layers", ["0", "1.5"])
def test_a_number_of_layers_that_is_none(layers: str, corpora: Path) -> None:
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", f"data.root={corpora}"]
    with pytest.raises(ConfigError, match=r"model.layers is .* whole number of at least 1"):
        load_experiment([*own, f"model.layers={layers}"])


def test_words_are_read_in_order_before_the_tree(corpora: Path) -> None:
    own = ["experiment=sst_tree_lstm", "model=sequence_tree_lstm", "model.hidden_size=8"]
    loaded = load_experiment([*own, f"data.root={corpora}"])
    assert loaded.model.passes == (Up("next"), Down("next"), Up())
    (batch,) = loaded.batches(1)
    words = int((batch.dag.op_type == 0).sum())
    assert len(batch.dag.relations["next"].index) == words - batch.num_graphs
