"""One tree at a time: the same answer from a text, from a graph and from a planned batch."""

from __future__ import annotations

import pytest
import torch
from training.tiny_runs import write_corpora

from benchmarks.experiment import Experiment, load_experiment
from benchmarks.predict import make_calls, read_examples, require_equal
from benchmarks.sst import OVERRIDES


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    root = write_corpora(tmp_path_factory.mktemp("data"))
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model.hidden_size=4"]
    return load_experiment([*OVERRIDES, *settings])


def test_every_variant_says_the_same_of_every_record(experiment):
    calls, examples = make_calls(experiment), read_examples(experiment)
    assert len(examples) == 12
    assert all(example.batch.num_graphs == 1 for example in examples)
    for example in examples:
        require_equal(calls, example)


def test_a_wrong_variant_is_refused(experiment):
    calls, examples = make_calls(experiment), read_examples(experiment)
    right = calls["planned"]
    wrong = {**calls, "planned": lambda example: right(example) * torch.tensor([3, 1, 1, 1, 1])}
    with pytest.raises(RuntimeError, match="variant planned differs from graphfold"):
        require_equal(wrong, examples[0])
