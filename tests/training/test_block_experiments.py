"""Block models on the command line: evaluated, predicted, resumed and verified like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run, train, write_corpora

from graphfold.batching import Batch
from graphfold.training.loop.loop import Loop
from graphfold.training.run.checkpoint import Checkpoint

SST = ["experiment=sst_blocks", "model.hidden_size=6", "data.batch_size=5", "trainer.max_epochs=3"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def sentiment(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("run") / "sst", *SST, f"data.root={corpora}")


@pytest.fixture(scope="module")
def solubility(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ["model.hidden_size=6", "trainer.max_epochs=2", f"data.root={corpora}"]
    return train(tmp_path_factory.mktemp("run") / "esol", "experiment=esol_blocks", *more)


@pytest.mark.parametrize("name", ["sentiment", "solubility"])
def test_evaluation_repeats_the_numbers(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(name)
    before = read_json(folder / "metrics.json")
    for part in ("val", "test"):
        path = tmp_path / f"{part}.json"
        assert run("evaluate", folder, "--split", part, "--json", path) == 0
        wanted = {key: value for key, value in before.items() if key.startswith(f"{part}/")}
        assert read_json(path) == wanted


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


def test_molecules_are_predicted_as_a_table(
    solubility: Path, corpora: Path, tmp_path: Path
) -> None:
    path, output = tmp_path / "f.csv", tmp_path / "out.csv"
    path.write_text("smiles,measured log solubility in mols per litre\nCCO,\nC1CC,\nCC,\n")
    assert run("predict", solubility, path, "--output", output) == 0
    header, *rows = output.read_text().splitlines()
    assert "_pred," in header
    assert header.endswith("_limit,reason")
    assert [bool(row.split(",")[2]) for row in rows] == [True, False, True]


def test_a_resumed_run_ends_as_an_unbroken_one(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = [*SST, f"data.root={corpora}"]
    whole, broken = train(tmp_path / "whole", *common), tmp_path / "broken"
    original, count = Loop.training_step, 0

    def step(loop: Loop, batch: Batch, index: int) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        original(loop, batch, index)

    monkeypatch.setattr(Loop, "training_step", step)
    cache = f"data.cache_dir={tmp_path}/cache"
    assert run("train", *common, cache, "logger=none", f"hydra.run.dir={broken}") == 1
    monkeypatch.undo()
    assert run("train", f"resume={broken}") == 0
    assert read_json(broken / "metrics.json") == read_json(whole / "metrics.json")
    assert (broken / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@pytest.mark.parametrize("name", ["sentiment", "solubility"])
def test_the_engine_is_verified(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert run("verify", request.getfixturevalue(name), "--examples", "3", "--json", path) == 0
    found = read_json(path)["comparisons"]
    assert len({row["policy"] for row in found}) > 2
    assert all(row["equal"] for row in found)


@pytest.mark.slow
def test_rows_of_graphs_for_trees_that_have_one_target(tmp_path: Path) -> None:
    more = [word for word in listops("trainer.max_epochs=1") if "encoder" not in word]
    folder = train(tmp_path / "run", "data=listops_generated", "model=block_tree_lstm", *more)
    assert "test/accuracy" in read_json(folder / "metrics.json")
    checkpoint = Checkpoint.load(folder / "checkpoints" / "best.ckpt")
    assert checkpoint.config["model"]["level"] == "graph"
    assert checkpoint.packages == []
