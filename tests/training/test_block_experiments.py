"""Block models on the command line: evaluated, predicted and verified like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run, train

from graphfold.training.run.checkpoint import Checkpoint

SST = ["experiment=sst_blocks", "model.hidden_size=6", "data.batch_size=5"]
SST += ["trainer.max_epochs=1", "model.run=eager"]


@pytest.fixture(scope="module")
def sentiment(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run") / "sst", *SST, f"data.root={corpora}")


def test_evaluation_repeats_the_numbers(sentiment: Path, tmp_path: Path) -> None:
    assert run("evaluate", sentiment, "--json", tmp_path / "found.json") == 0
    assert read_json(tmp_path / "found.json") == read_json(sentiment / "metrics.json")


def test_trees_are_predicted_with_a_class_at_every_node(
    sentiment: Path, corpora: Path, tmp_path: Path
) -> None:
    trees = (corpora / "sst" / "test.txt").read_text().splitlines()
    path = tmp_path / "trees.txt"
    path.write_text("\n".join([*trees, "(2 (1 broken"]) + "\n")
    whole, single = tmp_path / "whole.jsonl", tmp_path / "single.jsonl"
    assert run("predict", sentiment, path, "--output", whole) == 0
    assert run("predict", sentiment, path, "--output", single, "--batch-size", "1") == 0
    first, second = ([json.loads(t) for t in f.read_text().splitlines()] for f in (whole, single))
    assert len(first) == len(trees) + 1
    assert "never closed" in first[-1]["reason"]
    for one, other in zip(first[:-1], second[:-1], strict=True):
        assert len(one["nodes"]) == 9
        assert [n["prediction"] for n in one["nodes"]] == [n["prediction"] for n in other["nodes"]]


def test_the_engine_is_verified(sentiment: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert run("verify", sentiment, "--examples", "3", "--json", path) == 0
    actual = read_json(path)["comparisons"]
    assert len({row["policy"] for row in actual}) > 2
    assert all(row["equal"] for row in actual)


@pytest.mark.slow
def test_rows_of_graphs_for_trees_that_have_one_target(tmp_path: Path) -> None:
    more = [word for word in listops("trainer.max_epochs=1") if "encoder" not in word]
    folder = train(tmp_path / "run", "data=listops_generated", "model=block_tree_lstm", *more)
    assert "test/accuracy" in read_json(folder / "metrics.json")
    checkpoint = Checkpoint.load(folder / "checkpoints" / "best.ckpt")
    assert checkpoint.config["model"]["level"] == "graph"
    assert checkpoint.packages == []
