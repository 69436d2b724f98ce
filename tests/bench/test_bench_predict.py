"""One tree at a time: the same answer from a text, from a graph and from a planned batch."""

from __future__ import annotations

import pytest
import torch
from training.tiny_runs import write_corpora

from graphfold.batching.native.library import why_missing
from graphfold.bench.experiment import load_experiment
from graphfold.bench.predict import Variants
from graphfold.bench.sst import OVERRIDES


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Variants:
    root = write_corpora(tmp_path_factory.mktemp("data"))
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model.hidden_size=4"]
    return Variants(load_experiment([*OVERRIDES, *settings]))


def test_the_models_are_loaded_and_evaluate(variants: Variants) -> None:
    fuses = {name: found.trained.model.network.fuse for name, found in variants.predictors.items()}
    assert fuses == (
        {"graphfold": True, "untraced": False} if why_missing(torch.float32) is None else fuses
    )
    assert not any(found.trained.model.training for found in variants.predictors.values())
    assert all(example.batch.num_graphs == 1 for example in variants.examples)
    assert len(variants.examples) == 12


def test_every_variant_says_the_same_of_every_record(variants: Variants) -> None:
    variants.require_equal()
    for example in variants.examples:
        (ours,) = variants.calls["graphfold"](example)
        (other,) = variants.calls["from_graph"](example)
        raw = variants.calls["planned"](example)
        assert other.to_dict()["prediction"] == ours["prediction"]
        root = example.batch.dag.output_index
        assert str(int(raw[root].argmax())) == str(ours["prediction"])


def test_a_wrong_variant_is_refused(variants: Variants, monkeypatch: pytest.MonkeyPatch) -> None:
    right = variants._planned
    monkeypatch.setattr(variants, "_planned", lambda example: 3 * right(example))
    with pytest.raises(RuntimeError, match="variant planned differs from graphfold"):
        variants.require_equal()
