"""Models that are fitted at once, through the commands: train, evaluate, predict, resume, sweep."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch
from training.tiny_runs import read_json, run, train, write_molecules

from graphfold.inference.predictor import load

SMALL = ["model.num_trees=7", "data.fingerprint_size=64"]


def overrides(path: Path, *more: str) -> list[str]:
    columns = "data.target_columns=['a b',c]"
    return ["data=smiles", "model=forest", f"data.path={path}", columns, *SMALL, *more]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_molecules(tmp_path_factory.mktemp("table") / "t.csv", 60)


@pytest.fixture(scope="module")
def forest(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "run", *overrides(table))


def test_a_run_has_the_files_of_any_run(forest: Path) -> None:
    for name in ("config.yaml", "metrics.json", "report.html", "checkpoints/best.ckpt"):
        assert (forest / name).is_file()
    metrics = read_json(forest / "metrics.json")
    for part in ("val", "test"):
        assert math.isfinite(metrics[f"{part}/rmse/a b"])
        assert math.isfinite(metrics[f"{part}/rmse/c"])
    (row,) = csv.DictReader((forest / "metrics.csv").read_text().splitlines())
    assert float(row["val/rmse"]) == pytest.approx(metrics["val/rmse"])
    content = torch.load(forest / "checkpoints" / "best.ckpt", weights_only=True)
    assert "targets.0.threshold" in content["state_dict"]


def test_it_is_evaluated_and_predicts(
    forest: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("evaluate", forest, "--json", tmp_path / "m.json") == 0
    metrics = read_json(forest / "metrics.json")
    found = read_json(tmp_path / "m.json")
    assert {k: v for k, v in metrics.items() if v is not None}.items() <= found.items()
    (tmp_path / "new.csv").write_text("smiles\nCCO\nC1CC\nCCN\n")
    assert run("predict", forest, tmp_path / "new.csv", "--output", tmp_path / "out.csv") == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [bool(row["reason"]) for row in rows] == [False, True, False]
    (told, _) = load(forest).predict(["CCO", "CCN"])
    assert float(rows[0]["a b_pred"]) == pytest.approx(told["prediction"]["a b"])
    capsys.readouterr()


def test_a_finished_run_is_scored_again(forest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_json(forest / "metrics.json")
    assert run("train", f"resume={forest}") == 0
    assert "is finished: its best checkpoint is scored again" in capsys.readouterr().out
    assert read_json(forest / "metrics.json") == before


def test_there_is_nothing_to_verify(forest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", forest) == 2
    assert "ForestModel has no cells, so there is nothing to compare" in capsys.readouterr().err


def test_the_seed_decides(forest: Path, table: Path, tmp_path: Path) -> None:
    found = [
        read_json(train(tmp_path / str(number), *overrides(table, *more)) / "metrics.json")
        for number, more in enumerate([(), ("seed=2", "data.seed=1")])
    ]
    first = read_json(forest / "metrics.json")
    assert found[0] == first
    assert found[1]["test/rmse"] != first["test/rmse"]


@pytest.mark.parametrize("model", ["boosting", "kernel", "committee"])
def test_the_other_models_without_a_val_part(table: Path, tmp_path: Path, model: str) -> None:
    words = [word for word in overrides(table) if not word.startswith("model.")]
    sizes = ["data.fractions=[0.8,0.0,0.2]", "data.descriptors=[morgan,rdkit2d]", f"model={model}"]
    metrics = read_json(train(tmp_path / "run", *words, *sizes) / "metrics.json")
    assert math.isfinite(metrics["test/rmse"])
    assert not [name for name in metrics if name.startswith("val/")]


def test_classes(table: Path, tmp_path: Path) -> None:
    words = ["data.task=classification", "data.target_columns=[active]"]
    metrics = read_json(train(tmp_path / "run", *overrides(table), *words) / "metrics.json")
    assert 0 <= metrics["test/roc_auc"] <= 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("trainer.devices=2", "ForestModel is fitted at once and in one process. Leave out"),
        ("trainer.precision=bf16-mixed", "in which what ForestModel compares would be rounded"),
        ("init_from", "no weight of"),
    ],
)
def test_what_only_networks_have(
    forest: Path,
    table: Path,
    tmp_path: Path,
    more: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = f"init_from={forest}" if more == "init_from" else more
    folder = f"hydra.run.dir={tmp_path}/run"
    assert run("train", *overrides(table, more, folder, f"data.cache_dir={tmp_path}")) == 2
    assert message in capsys.readouterr().err


def test_trees_without_numbers_say_what_to_set(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = ["data.descriptors=[]", "data.fingerprint_size=2048"]
    words = overrides(table, *none, f"hydra.run.dir={tmp_path}/run")
    assert run("train", *words, f"data.cache_dir={tmp_path}") == 2
    assert "Set data.descriptors=[morgan] or [rdkit2d,morgan]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    ["data.bounded_targets=true", "+model.head.loss=mae"],
)
def test_what_it_does_not_read_is_refused(
    option: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [option, "logger=none", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *overrides(table, *more, f"data.cache_dir={tmp_path}/cache")) == 2
    name = option.partition("=")[0].lstrip("+")
    assert f"ForestModel does not read {name}." in capsys.readouterr().err
