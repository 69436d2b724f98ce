"""Evaluation: the numbers of training again, other data, overlap, trust."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from inference.conftest import SMALL
from training.tiny_runs import read_json, run, train, write_molecules

from graphfold.training.run.checkpoint import Checkpoint


@pytest.fixture
def evaluate(tmp_path: Path):
    """`evaluate(run, *words)`: the metrics that the command writes."""

    def evaluated(run_path: Path, *words: str | Path) -> dict[str, float | None]:
        assert run("evaluate", run_path, "--json", tmp_path / "metrics.json", *words) == 0
        return read_json(tmp_path / "metrics.json")

    return evaluated


@pytest.mark.parametrize("name", ["lists", "numbers", "classes", "trees"])
def test_the_numbers_of_training_to_all_digits(name, evaluate, request, tmp_path, monkeypatch):
    run_path = request.getfixturevalue(name)
    monkeypatch.chdir(tmp_path)  # a run is found from anywhere
    trained = read_json(run_path / "metrics.json")
    assert evaluate(run_path) == trained
    best = run_path / "checkpoints" / "best.ckpt"
    test_only = {key: value for key, value in trained.items() if key.startswith("test/")}
    assert evaluate(best, "--split", "test") == test_only
    other = evaluate(run_path, "--split", "val", "--batch-size", "3")
    assert other == pytest.approx({key: trained[key] for key in other}, abs=1e-4)


def test_other_data_are_scored_whole_with_and_without_the_overlap(lists, evaluate, tmp_path):
    parts = lists.parent / "cache"
    train_file, test_file = (
        next(parts.glob(f"listops_generated-*/{part}.tsv")) for part in ("train", "test")
    )
    seen, new = (file.read_text().splitlines() for file in (train_file, test_file))
    mixed = tmp_path / "mixed.tsv"
    mixed.write_text("\n".join([*seen[:5], *new]) + "\n")
    metrics = evaluate(lists, "--data", mixed)
    assert {key.split("/")[0] for key in metrics} == {"test"}
    assert metrics["test/overlap"] == 5
    trained = read_json(lists / "metrics.json")
    assert metrics["test/accuracy_unseen"] == pytest.approx(trained["test/accuracy"])
    assert (metrics["test/accuracy"] * (5 + len(new))) % 1 == pytest.approx(0, abs=1e-6)


def test_bad_records_of_other_data(numbers, evaluate, tmp_path):
    table = write_molecules(tmp_path / "bad.csv", num_rows=20, bad_rows=5)
    assert run("evaluate", numbers, "--data", table) == 2
    metrics = evaluate(numbers, "--data", table, "--on-error", "skip")
    assert metrics["test/coverage"] == pytest.approx(15 / 20)


def test_a_setting_changes_how_data_are_read(numbers, home, evaluate, tmp_path, capsys):
    renamed = tmp_path / "renamed.csv"
    renamed.write_text((home / "m.csv").read_text().replace("smiles", "my smiles", 1))
    assert run("evaluate", numbers, "--data", renamed) == 2
    assert "Add --set smiles_column=VALUE." in capsys.readouterr().err
    words = ["--data", renamed, "--set", "smiles_column='my smiles'", "batch_size=2"]
    assert evaluate(numbers, *words)["test/overlap"] == 30


def test_undefined_metrics_are_null_with_a_warning(classes, evaluate, tmp_path, capsys):
    (tmp_path / "ones.csv").write_text("smiles,active\nCC,1\nCCO,1\n")
    assert evaluate(classes, "--data", tmp_path / "ones.csv")["test/roc_auc"] is None
    error = capsys.readouterr().err
    assert error.startswith("warning: test/roc_auc")
    assert error.count("\n") == 1


def test_a_changed_file_is_refused(tmp_path, capsys):
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *SMALL]
    run_path = train(tmp_path / "run", *words)
    table.write_text(table.read_text().replace("CCO", "CCC"))
    assert run("evaluate", run_path) == 2
    assert "m.csv: the file changed since the run split it" in capsys.readouterr().err
    assert run("evaluate", run_path, "--data", table) == 0


def test_classes_have_scores_of_their_own(lists, numbers, evaluate, capsys):
    metrics = evaluate(lists, "--split", "test", "--per-class")
    captured = capsys.readouterr()
    assert "classes of test\n" in captured.out
    assert captured.err.startswith("warning: test/precision/")  # of a class that is never predicted
    scores = {key for key in metrics if key.startswith("test/recall/")}
    assert scores == {f"test/recall/{digit}" for digit in range(10)}
    assert sum(metrics[f"test/support/{digit}"] for digit in range(10)) == 12
    counts = {key: count for key, count in metrics.items() if key.startswith("test/confusion/")}
    assert sum(counts.values()) == 12
    for key, count in counts.items():  # how many of a class were given which one
        true, predicted = key.split("/")[2:]
        assert 0 < count <= metrics[f"test/support/{true}"]
        if true == predicted:
            assert count == metrics[f"test/recall/{true}"] * metrics[f"test/support/{true}"]
    title = "answer of test: a row for each true class, a column for each predicted one\n"
    assert title in captured.out
    assert run("evaluate", numbers, "--per-class") == 2
    assert "predicts no classes" in capsys.readouterr().err


def test_wrong_use_is_refused(lists, tmp_path, capsys):
    for words, message in (
        ((lists, "--data", "x", "--split", "test"), "--data or --split, not both"),
        ((tmp_path,), "no checkpoint in it"),
    ):
        assert run("evaluate", *words) == 2
        assert message in capsys.readouterr().err


ADAPTER = '''
from graphfold.datasets.readers.listops import ListOpsAdapter

class Mine(ListOpsAdapter):
    """List operations by another name."""
'''


def test_a_package_of_ones_own_has_to_be_trusted(tmp_path, evaluate, monkeypatch, capsys):
    (tmp_path / "own_adapter.py").write_text(ADAPTER)
    (tmp_path / "conf" / "data").mkdir(parents=True)
    lines = ["3\t( ( ( [MAX 2 ) 3 ) ] )", "5\t5", "0\t0", "7\t7"] * 5
    (tmp_path / "f.tsv").write_text("\n".join(lines) + "\n")
    config = "defaults:\n  - _base\nadapter: own_adapter.Mine\n"
    (tmp_path / "conf" / "data" / "mine.yaml").write_text(config)
    monkeypatch.syspath_prepend(tmp_path)
    run_path = train(
        tmp_path / "run", "--config-dir", str(tmp_path / "conf"), "data=mine",
        f"data.path={tmp_path / 'f.tsv'}", *SMALL,
    )  # fmt: skip
    assert Checkpoint.load(run_path / "checkpoints" / "best.ckpt").packages == ["own_adapter"]
    del sys.modules["own_adapter"]
    data, resume = tmp_path / "f.tsv", ["train", f"resume={run_path}"]
    drawn = ["draw", run_path, data, "--output", tmp_path / "drawn"]
    for words in (["evaluate", run_path], ["predict", run_path, data], drawn, resume):
        assert run(*words) == 2
        assert "add --trust own_adapter" in capsys.readouterr().err
        assert run(*words, "--trust", "another") == 2
        assert "own_adapter" not in sys.modules
    assert evaluate(run_path, "--trust", "own_adapter") == read_json(run_path / "metrics.json")
    for words in (["predict", run_path, data], drawn, resume):
        assert run(*words, "--trust", "own_adapter") == 0


def changed(run_path: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of the best checkpoint with one text of its config replaced."""
    path = Path(shutil.copy(run_path / "checkpoints" / "best.ckpt", folder / "changed.ckpt"))
    content = torch.load(path, weights_only=True)
    assert old in content["config"]
    torch.save({**content, "config": content["config"].replace(old, new)}, path)
    return path


@pytest.mark.parametrize("target", ["os.system", "torch.load", "graphfold.recipe.train"])
def test_a_checkpoint_that_names_a_foreign_class_is_refused(target, lists, tmp_path, capsys):
    path = changed(lists, tmp_path, "graphfold.layers.LeafLSTMCell", target)
    assert run("evaluate", path) == 2
    error = capsys.readouterr().err
    assert target in error
    assert "not registered in graphfold" in error


def test_a_checkpoint_that_does_not_fit_is_refused(lists, tmp_path, capsys):
    broken = changed(lists, tmp_path, '"metrics": null', '"metrics": 3')
    assert run("evaluate", broken) == 2
    assert "metrics is 3, but it is a list" in capsys.readouterr().err
    content = torch.load(lists / "checkpoints" / "best.ckpt", weights_only=True)
    name, value = next(iter(content["state_dict"].items()))
    content["state_dict"][name] = torch.cat([value, value])
    torch.save(content, tmp_path / "other.ckpt")
    assert run("evaluate", tmp_path / "other.ckpt") == 2
    assert "the model that it describes cannot be built" in capsys.readouterr().err
