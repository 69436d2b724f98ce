"""Evaluation: the numbers of training again, other data, overlap, trust."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train, write_corpora, write_molecules

from graphfold.training.run.checkpoint import Checkpoint

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture(scope="module")
def listops_run(folder: Path) -> Path:
    return train(folder / "listops", *listops())


@pytest.fixture(scope="module")
def molecule_run(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    return train(
        folder / "molecules", "data=smiles", f"data.path={table}", "data.target_columns=['a b',c]",
        *SMALL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def class_run(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    return train(
        folder / "classes", "data=smiles", f"data.path={table}", "data.target_columns=[active]",
        "data.task=classification", *SMALL,
    )  # fmt: skip


def evaluate(run_path: Path, *words: str | Path) -> dict[str, float | None]:
    out = run_path.parent / "metrics_of_evaluate.json"
    assert run("evaluate", run_path, "--json", out, *words) == 0
    return read_json(out)


@pytest.mark.parametrize("name", ["listops_run", "molecule_run", "class_run"])
def test_the_numbers_of_training_to_all_digits(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_path = request.getfixturevalue(name)
    monkeypatch.chdir(tmp_path)  # a run is found from anywhere
    trained = read_json(run_path / "metrics.json")
    assert evaluate(run_path) == trained
    assert evaluate(run_path / "checkpoints" / "best.ckpt") == trained
    test_only = {key: value for key, value in trained.items() if key.startswith("test/")}
    assert evaluate(run_path, "--split", "test") == test_only


def test_other_batches_give_the_same_up_to_rounding(molecule_run: Path) -> None:
    trained = read_json(molecule_run / "metrics.json")
    found = evaluate(molecule_run, "--batch-size", "3")
    assert found == pytest.approx(trained, abs=1e-4)


def test_each_task_has_its_metric_and_the_mean_has_none(molecule_run: Path) -> None:
    metrics = read_json(molecule_run / "metrics.json")
    mean = (metrics["test/rmse/a b"] + metrics["test/rmse/c"]) / 2
    assert metrics["test/rmse"] == pytest.approx(mean)


def test_classification_of_molecules_has_areas(class_run: Path) -> None:
    metrics = read_json(class_run / "metrics.json")
    assert {"test/roc_auc", "test/pr_auc", "test/accuracy", "test/roc_auc/active"} <= set(metrics)


def test_other_data_are_scored_whole_with_and_without_the_overlap(
    listops_run: Path, folder: Path
) -> None:
    files = folder / "cache"
    train_file = next(files.glob("listops_generated-*/train.tsv"))
    test_file = next(files.glob("listops_generated-*/test.tsv"))
    seen = train_file.read_text().splitlines()[:5]
    mixed = folder / "mixed.tsv"
    mixed.write_text("\n".join([*seen, *test_file.read_text().splitlines()]) + "\n")
    metrics = evaluate(listops_run, "--data", mixed)
    assert {key.split("/")[0] for key in metrics} == {"test"}
    assert metrics["test/overlap"] == 5
    trained = read_json(listops_run / "metrics.json")
    assert metrics["test/accuracy_unseen"] == pytest.approx(trained["test/accuracy"])
    total = len(mixed.read_text().splitlines())
    assert metrics["test/accuracy"] is not None
    assert (metrics["test/accuracy"] * total) % 1 == pytest.approx(0, abs=1e-6)


def test_bad_records_of_other_data(molecule_run: Path, folder: Path) -> None:
    table = write_molecules(folder / "bad.csv", num_rows=20, bad_rows=5)
    assert run("evaluate", molecule_run, "--data", table) == 2
    metrics = evaluate(molecule_run, "--data", table, "--on-error", "skip")
    assert metrics["test/coverage"] == pytest.approx(15 / 20)


def test_a_setting_changes_how_data_are_read(
    molecule_run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "m.csv").read_text().replace("smiles", "my smiles", 1)
    (folder / "renamed.csv").write_text(text)
    assert run("evaluate", molecule_run, "--data", folder / "renamed.csv") == 2
    assert "Add --set smiles_column=VALUE." in capsys.readouterr().err
    words = ["--data", folder / "renamed.csv", "--set", "smiles_column='my smiles'"]
    assert evaluate(molecule_run, *words)["test/overlap"] == 30


def test_undefined_metrics_are_null_with_a_warning(
    class_run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ones.csv").write_text("smiles,active\nCC,1\nCCO,1\n")
    metrics = evaluate(class_run, "--data", folder / "ones.csv")
    assert metrics["test/roc_auc"] is None
    error = capsys.readouterr().err
    assert error.startswith("warning: test/roc_auc")
    assert error.count("\n") == 1


def test_a_changed_file_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *SMALL]
    run_path = train(tmp_path / "run", *words)
    table.write_text(table.read_text().replace("CCO", "CCC"))
    assert run("evaluate", run_path) == 2
    assert "m.csv: the file changed since the run split it" in capsys.readouterr().err
    assert run("evaluate", run_path, "--data", table) == 0


def test_classes_have_scores_of_their_own(
    listops_run: Path, molecule_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = evaluate(listops_run, "--split", "test", "--per-class")
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
    trained = read_json(listops_run / "metrics.json")
    assert {
        key: metrics[key] for key in trained if key.startswith("test/")
    }.items() <= trained.items()
    assert run("evaluate", molecule_run, "--per-class") == 2
    assert "predicts no classes" in capsys.readouterr().err


def test_split_and_data_exclude_each_other(
    listops_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", listops_run, "--data", "x", "--split", "test") == 2
    assert "--data or --split, not both" in capsys.readouterr().err


def test_a_folder_without_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", tmp_path) == 2
    assert "no checkpoint in it" in capsys.readouterr().err


def test_trees_with_labels_on_nodes_have_metrics_of_the_root(tmp_path: Path) -> None:
    root = write_corpora(tmp_path / "corpora")
    run_path = train(tmp_path / "run", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL)
    metrics = read_json(run_path / "metrics.json")
    names = {"root_accuracy", "root_binary_accuracy", "node_accuracy", "macro_f1"}
    assert {f"test/{name}" for name in names} <= set(metrics)
    assert evaluate(run_path) == metrics


ADAPTER = '''
from graphfold.datasets.readers.listops import ListOpsAdapter

class Mine(ListOpsAdapter):
    """List operations by another name."""
'''


def test_a_package_of_ones_own_has_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    resume = ["train", f"resume={run_path}"]
    for words in (["evaluate", run_path], ["predict", run_path, tmp_path / "f.tsv"], resume):
        assert run(*words) == 2
        assert "add --trust own_adapter" in capsys.readouterr().err
        assert run(*words, "--trust", "another") == 2
        assert "own_adapter" not in sys.modules
    assert evaluate(run_path, "--trust", "own_adapter") == read_json(run_path / "metrics.json")
    assert run("predict", run_path, tmp_path / "f.tsv", "--trust", "own_adapter") == 0
    assert run(*resume, "--trust", "own_adapter") == 0


def test_a_checkpoint_that_names_a_foreign_class_is_refused(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(listops_run / "checkpoints" / "best.ckpt", weights_only=True)
    for target in ("os.system", "torch.load", "graphfold.recipe.train"):
        text = content["config"].replace("graphfold.layers.LeafLSTMCell", target)
        torch.save({**content, "config": text}, tmp_path / "evil.ckpt")
        assert run("evaluate", tmp_path / "evil.ckpt") == 2
        error = capsys.readouterr().err
        assert target in error
        assert "not registered in graphfold" in error


def test_a_checkpoint_with_broken_metrics_is_refused(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(listops_run / "checkpoints" / "best.ckpt", weights_only=True)
    assert '"metrics": null' in content["config"]
    text = content["config"].replace('"metrics": null', '"metrics": 3')
    torch.save({**content, "config": text}, tmp_path / "broken.ckpt")
    assert run("evaluate", tmp_path / "broken.ckpt") == 2
    assert "metrics is 3, but it is a list" in capsys.readouterr().err


def test_a_checkpoint_of_another_model_is_refused(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(listops_run / "checkpoints" / "best.ckpt", weights_only=True)
    name, value = next(iter(content["state_dict"].items()))
    content["state_dict"][name] = torch.cat([value, value])
    torch.save(content, tmp_path / "other.ckpt")
    assert run("evaluate", tmp_path / "other.ckpt") == 2
    assert "the model that it describes cannot be built" in capsys.readouterr().err
