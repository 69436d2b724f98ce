"""Bytes of a training step: what is counted, and how it grows."""

from __future__ import annotations

import pytest
import torch
from training.tiny_runs import write_corpora

from graphfold.bench.benchmarks import sst
from graphfold.bench.benchmarks.memory import Bytes, Step, allocated, figures
from graphfold.bench.experiment import Experiment, load_experiment
from graphfold.dag import select

KILO = 1024


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    root = write_corpora(tmp_path_factory.mktemp("data"))
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model.hidden_size=16"]
    return load_experiment([*sst.OVERRIDES, *settings, "data.batch_size=12"])


def settled(experiment: Experiment, times: int, share: bool = False) -> dict[str, int]:
    """The figures of a batch that many times as large."""
    dag = experiment.batches(1)[0].dag
    copies = select(dag, list(range(dag.num_graphs)) * times)
    step = Step(experiment, experiment.model.plan(copies, share=share))
    figures(step)  # the first call compiles
    return figures(step)


def test_blocks_are_counted_when_they_are_given_out_and_taken_back() -> None:
    def call() -> object:
        first = torch.empty(100 * KILO, dtype=torch.uint8)
        second = torch.empty(50 * KILO, dtype=torch.uint8)
        del first
        third = torch.empty(30 * KILO, dtype=torch.uint8)
        return second, third.view(-1)[:10]  # a view holds the whole block

    assert allocated(call) == Bytes(held=80 * KILO, peak=150 * KILO)


def test_a_graph_holds_what_backward_needs() -> None:
    x = torch.randn(256, 64, requires_grad=True)

    def call() -> object:
        return x.exp().sigmoid()  # each keeps its result, [256, 64] in float32

    assert allocated(call).held == 2 * 256 * 64 * 4


def test_memory_is_linear_in_nodes(experiment: Experiment) -> None:
    few, many = settled(experiment, 8), settled(experiment, 80)
    assert many["nodes"] == 10 * few["nodes"]
    assert many["bytes_per_node"] == pytest.approx(few["bytes_per_node"], rel=0.03)
    assert many["peak_bytes_per_node"] <= 1.03 * few["peak_bytes_per_node"]
    assert many["peak_bytes_per_node"] > many["bytes_per_node"]


def test_equal_nodes_once_hold_less(experiment: Experiment) -> None:
    every_node = settled(experiment, 10)
    shared = settled(experiment, 10, share=True)
    assert shared["nodes"] == every_node["nodes"]
    assert shared["bytes_per_node"] < 0.95 * every_node["bytes_per_node"]
