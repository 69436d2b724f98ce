"""Block models on the command line: evaluated, predicted, resumed and verified like any other."""

from __future__ import annotations

import json
import sys
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


def test_experiments_and_models_of_blocks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    found = capsys.readouterr().out
    for name in ("sst_blocks", "esol_blocks", "block_tree_lstm", "block_neighbourhood"):
        assert f"  {name} " in found


ROOT = '''
from graphfold import blocks as td

def sizes(schema, scale: float = 1.0):
    """The number of nodes of a graph, as a vector."""
    return td.InputTransform(lambda graph: [scale * len(graph.nodes)]) >> td.Vector(1)
'''

MODEL = """
_target_: graphfold.blocks.BlockModel
root:
  _target_: own_blocks.sizes
  _partial_: true
  scale: 0.5
level: graph
head:
  _target_: auto
  _partial_: true
"""


@pytest.mark.slow
def test_a_root_of_ones_own_has_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_blocks.py").write_text(ROOT)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "own.yaml").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    more = [word for word in listops("trainer.max_epochs=1") if not word.startswith("model")]
    conf = ["--config-dir", str(tmp_path / "conf"), "data=listops_generated", "model=own"]
    folder = train(tmp_path / "run", *conf, *more)
    assert Checkpoint.load(folder / "checkpoints" / "best.ckpt").packages == ["own_blocks"]
    del sys.modules["own_blocks"]
    capsys.readouterr()
    assert run("evaluate", folder) == 2
    assert "If you trust the package 'own_blocks', add --trust" in capsys.readouterr().err
    assert "own_blocks" not in sys.modules
    assert run("evaluate", folder, "--trust", "own_blocks") == 0
    assert run("train", *conf, *more, "model.root.scale=[1]") == 2
    assert "model.root.scale is [1], but it must be a number" in capsys.readouterr().err
