"""One tree at a time: the same answer from a text, from Python lists and from a planned batch."""

from __future__ import annotations

import pytest
import torch
from training.tiny_runs import write_corpora

from graphfold.batching.native.library import why_missing
from graphfold.bench.experiment import load_experiment
from graphfold.bench.predict import Variants, nested_tree, write_tree
from graphfold.bench.sst import OVERRIDES
from graphfold.dag import validate
from graphfold.datasets.adapters.bracket_tree import BracketText
from graphfold.datasets.adapters.brackets import BracketsAdapter


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Variants:
    root = write_corpora(tmp_path_factory.mktemp("data"))
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model.hidden_size=4"]
    return Variants(load_experiment([*OVERRIDES, *settings]))


def test_brackets_become_lists_and_lists_a_graph() -> None:
    tree = nested_tree(BracketText("(3 (2 the) (3 (2 (1 very)) (4 good)))", 1, 1))
    assert tree == ["the", [["very"], "good"]]
    dag = write_tree(tree, BracketsAdapter(num_classes=5, binarize=True).schema)
    validate(dag)
    assert dag.strings("type:word", "form") == ["the", "very", "good"]
    assert dag.input_index.tolist() == [1, -1, 2, 3, 0, 4]
    assert dag.output_index.tolist() == [dag.num_nodes - 1]


def test_a_deep_tree_is_written_without_recursion() -> None:
    tree: object = "word"
    for _ in range(10_000):
        tree = [tree, "word"]
    dag = write_tree(tree, BracketsAdapter(num_classes=5, binarize=True).schema)  # type: ignore[arg-type]
    assert dag.num_nodes == 20_001


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
        raw = variants.calls["planned"](example)
        other = variants.calls["logits"](example)
        assert isinstance(raw, torch.Tensor)
        assert isinstance(other, torch.Tensor)
        torch.testing.assert_close(raw.sort(0).values, other.sort(0).values)


def test_a_wrong_variant_is_refused(variants: Variants, monkeypatch: pytest.MonkeyPatch) -> None:
    right = variants.calls["logits"]
    monkeypatch.setattr(variants, "_logits", lambda example: 3 * right(example))  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="variant logits differs from graphfold"):
        variants.require_equal()
