"""Ensembles, losses and calibration of whole runs, from the command line."""

from __future__ import annotations

import csv
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training.tiny_runs import MOLECULES, read_json, run, train

import graphfold
from graphfold.loader import GraphLoader
from graphfold.training.loop.loop import Loop
from graphfold.training.run.checkpoint import Checkpoint

SMALL = [
    "data=smiles",
    "model=gcn",
    "model.hidden_size=8",
    "model.run=eager",
    "trainer.max_epochs=2",
    "data.batch_size=16",
    "data.fractions=[0.5,0.3,0.2]",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of 50 molecules: y, some bounds in z, a class and a weight."""
    folder = tmp_path_factory.mktemp("uncertainty")
    rng = random.Random(3)
    lines = ["smiles,y,z,kind,weight"]
    for row in range(50):
        smiles = "C" * (row // 10) + MOLECULES[row % len(MOLECULES)]
        z = f"{rng.choice(['', '', '>', '<='])}{rng.gauss(0, 1):.2f}"
        lines.append(f"{smiles},{len(smiles) + rng.gauss(0, 1):.2f},{z},{row % 2},{row % 3}")
    (folder / "m.csv").write_text("\n".join(lines) + "\n")
    return folder


def fit(home: Path, name: str, *overrides: str, target: str = "y") -> Path:
    table = [f"data.path={home}/m.csv", f"data.target_columns=[{target}]"]
    return train(home / name, *SMALL, *table, *overrides)


def predict(folder: Path, home: Path) -> list[dict[str, str]]:
    out = folder / "out.csv"
    assert run("predict", folder, home / "m.csv", "--output", out) == 0
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def single(home: Path) -> Path:
    return fit(home, "single")


@pytest.fixture(scope="module")
def ensemble(home: Path) -> Path:
    return fit(home, "ensemble", "ensemble=3")


def weights(path: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(path / "checkpoints" / "best.ckpt").state_dict


def test_the_first_member_is_the_single_model_and_the_others_differ(
    single: Path, ensemble: Path
) -> None:
    alone = weights(single)
    whole = Checkpoint.load(ensemble / "checkpoints" / "best.ckpt")
    assert whole.num_members == 3
    assert all(whole.member(0)[name].equal(value) for name, value in alone.items())
    for number in (1, 2):
        own = weights(ensemble / "members" / str(number + 1))
        assert all(whole.member(number)[name].equal(value) for name, value in own.items())
        assert not own["head.layers.1.weight"].equal(alone["head.layers.1.weight"])
    with (ensemble / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["member"] for row in rows] == ["1", "1", "2", "2", "3", "3"]


def test_an_ensemble_predicts_the_mean_and_scores_as_it_was_scored(
    home: Path, ensemble: Path
) -> None:
    rows = predict(ensemble, home)
    files = [ensemble / "members" / str(n) / "checkpoints" / "best.ckpt" for n in (1, 2, 3)]
    each = [graphfold.load(path) for path in files]
    smiles = [row["smiles"] for row in rows]
    values = torch.tensor([[p["prediction"] for p in model.predict(smiles)] for model in each])
    got = torch.tensor([[float(row[f"y_{part}"]) for part in PARTS] for row in rows])
    torch.testing.assert_close(got[:, 0], values.mean(0), rtol=1e-4, atol=1e-5)
    scale = Checkpoint.load(ensemble / "checkpoints" / "best.ckpt").calibration["std_scale"]
    inside = [row["y_limit"] == "" for row in rows]  # no member is cut off
    assert sum(inside) > 30
    want = scale * values.std(0, correction=1)
    torch.testing.assert_close(got[inside, 1], want[inside], rtol=1e-3, atol=1e-4)
    with (ensemble / "predictions.csv").open(newline="") as file:
        val = [row for row in csv.DictReader(file) if row["part"] == "val"]
    y, pred, std = (torch.tensor([float(row[f"y_{p}"]) for row in val]) for p in COLUMNS)
    torch.testing.assert_close(std.square().mean(), (y - pred).square().mean(), rtol=1e-4, atol=0)
    assert (got[:, 2] < got[:, 0]).all()
    assert (got[:, 0] < got[:, 3]).all()
    again = home / "again.json"
    assert run("evaluate", ensemble, "--json", again) == 0
    trained = read_json(ensemble / "metrics.json")
    assert read_json(again) == trained
    names = {"interval_coverage", "interval_width", "ence", "coverage"}
    assert {f"{part}/{name}" for part in ("val", "test") for name in names} <= set(trained)
    assert trained["test/coverage"] == 1
    assert trained["val/interval_coverage"] >= 0.9
    report = (ensemble / "report.html").read_text()
    assert "3 members" in report
    assert "90% intervals, calibrated on 15 validation records" in report
    assert run("verify", ensemble, "--examples", "3") == 0


PARTS = ("pred", "std", "lower", "upper")
COLUMNS = ("measured", "pred", "std")


def test_far_from_training_an_ensemble_is_unsure_and_says_that_it_stands_at_a_limit(
    home: Path, ensemble: Path
) -> None:
    near, far = graphfold.load(ensemble).predict(["CCO", "C" * 400])
    assert near["limit"] is None
    assert far["limit"] in ("low", "high")
    assert far["std"] > 3 * near["std"]
    assert far["upper"] - far["lower"] > 2 * (near["upper"] - near["lower"])
    (home / "far.csv").write_text(f"smiles\nCCO\n{'C' * 400}\n")
    assert run("predict", ensemble, home / "far.csv", "--output", home / "far_out.csv") == 0
    with (home / "far_out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["smiles", *(f"y_{p}" for p in LIMITED), "reason"]
    assert [row["y_limit"] for row in rows] == ["", far["limit"]]


LIMITED = ("pred", "limit", "std", "lower", "upper")


def test_a_calibrated_checkpoint_needs_no_other_file(
    home: Path, single: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "model.ckpt"
    shutil.copy(single / "checkpoints" / "best.ckpt", alone)
    whole = graphfold.load(single).predict(["CCO"])
    assert graphfold.load(alone).predict(["CCO"]) == whole
    assert whole[0]["lower"] < whole[0]["prediction"] < whole[0]["upper"]
    checkpoint = Checkpoint.load(alone)
    replace(checkpoint, calibration={}).save(alone)
    parts = {"line", "prediction", "limit", "reason"}
    assert set(graphfold.load(alone).predict(["CCO"])[0]) == parts


def test_a_broken_ensemble_goes_on_where_it_was(
    home: Path, ensemble: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "broken"
    original, seen = Loop.train_epoch, []

    def breaking(self: Loop, batches: GraphLoader) -> None:
        seen.append(1)
        if len(seen) == 4:  # the second epoch of the second member
            raise KeyboardInterrupt
        original(self, batches)

    monkeypatch.setattr(Loop, "train_epoch", breaking)
    words = [*SMALL, f"data.path={home}/m.csv", "data.target_columns=[y]", "ensemble=3"]
    words += [f"data.cache_dir={home}/cache", "logger=none", f"hydra.run.dir={folder}"]
    assert run("train", *words) == 1
    monkeypatch.undo()
    assert not (folder / "checkpoints" / "best.ckpt").exists()
    assert run("train", f"resume={folder}") == 0
    out = capsys.readouterr().out
    assert "member 2 of 3 goes on after epoch 1." in out
    assert "member 1 of 3 goes on" not in out
    want = weights(ensemble)
    assert all(value.equal(want[name]) for name, value in weights(folder).items())
    assert read_json(folder / "metrics.json") == read_json(ensemble / "metrics.json")
    assert run("train", f"resume={folder}", "trainer.max_epochs=3") == 0
    assert "member 3 of 3 goes on after epoch 2." in capsys.readouterr().out


def test_weights_come_from_ensembles_and_go_to_them(
    home: Path, ensemble: Path, single: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(home, "from_ensemble", f"init_from={ensemble}", "trainer.max_epochs=1")
    assert capsys.readouterr().out.count("weights taken from") == 1
    fit(home, "to_ensemble", f"init_from={single}", "trainer.max_epochs=1", "ensemble=2")
    lines = [line for line in capsys.readouterr().out.splitlines() if "weights taken" in line]
    assert len(lines) == 2
    assert "not taken" not in "".join(lines)


@pytest.mark.parametrize(
    ("loss", "parts"),
    [
        ("quantile", ["pred", "lower", "upper", "limit"]),
        ("mean_variance", ["pred", "std", "limit", "lower", "upper"]),
    ],
)
def test_a_run_with_another_loss(home: Path, loss: str, parts: list[str]) -> None:
    folder = fit(home, loss, f"+model.head.loss={loss}", "trainer.max_epochs=1")
    (row, *_) = predict(folder, home)
    assert [name for name in row if name.startswith("y_")] == [f"y_{part}" for part in parts]
    assert "test/interval_width" in read_json(folder / "metrics.json")


def test_classes_with_calibrated_probabilities(home: Path) -> None:
    folder = fit(
        home, "temperature", "data.task=classification", "calibration.method=temperature",
        "ensemble=2", "trainer.max_epochs=1", target="kind",
    )  # fmt: skip
    rows = predict(folder, home)
    names = ["kind_pred", "kind_prob_0", "kind_prob_1", "kind_std"]
    assert [name for name in rows[0] if name.startswith("kind_")] == names
    assert "test/ece" in read_json(folder / "metrics.json")


def test_too_few_records_give_no_intervals(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fit(home, "few", "data.fractions=[0.8,0.1,0.1]", "trainer.max_epochs=1")
    assert "no 90% intervals for y: they take 9 measured records" in capsys.readouterr().out
    assert "y_lower" not in predict(folder, home)[0]


def test_bounds_and_weights_of_a_table(home: Path) -> None:
    folder = fit(
        home, "bounds", "data.bounded_targets=true", "data.weight_column=weight",
        "+model.head.hidden_size=4", "trainer.max_epochs=1", target="z",
    )  # fmt: skip
    rows = predict(folder, home)
    assert all(row["z_pred"] for row in rows)
    assert run("evaluate", folder, "--data", home / "m.csv") == 0
    assert run("check-adapter", "smiles", "--data", home / "m.csv", "--set", "target_columns=[z]",
               "--set", "bounded_targets=true", "--set", "weight_column=weight") == 0  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("calibration.method=[auto]", "calibration.method is ['auto']"),
        ("calibration.method=conformla", "Did you mean 'conformal'?"),
        ("calibration.level=1.5", "it must be a number above 0 and below 1"),
        ("ensemble=0", "ensemble is 0, but it must be a whole number from 1 to 10,000"),
        ("data.bounded_targets=true data.task=classification", "bounded_targets=true is for num"),
        ("data.weight_column=y", "the column 'y' is asked for more than once"),
        ("data.weight_column=kinds", "Did you mean 'kind'? Set data.weight_column."),
        ("+model.head.loss=pinball", "model.head.loss is 'pinball'"),
    ],
)
def test_wrong_settings_are_refused(
    home: Path, tmp_path: Path, setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, f"data.path={home}/m.csv", "data.target_columns=[y]", *setting.split()]
    words += [f"data.cache_dir={home}/cache", "logger=none", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *words) == 2
    assert message in capsys.readouterr().err
