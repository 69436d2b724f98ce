"""A head and a metric of another package: one file each, named in a config."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run, train, write_molecules

import graphfold

SMALL = ["data=smiles", "model.hidden_size=8", "trainer.max_epochs=1", "data.batch_size=8"]
SMALL += ["model.run=eager"]

HEAD = '''
"""A median with an interval around it, by quantile regression."""

import torch
from matplotlib.figure import Figure
from torch import nn

from graphfold.layers import Head
from graphfold.metrics import metric


@metric(task="interval")
def share_inside(predicted, target):
    """Share of the targets within their interval."""
    return ((predicted[:, 1] <= target) & (target <= predicted[:, 2])).double().mean()


class IntervalHead(Head):
    """Predicts the quantiles 0.5, 0.1 and 0.9 of one number."""

    task = "interval"
    metrics_by_target = False
    parts = ("pred", "low", "high")

    def __init__(self, input_size, schema, level="graph"):
        super().__init__(schema, level, None)
        self.linear = nn.Linear(input_size, 3)
        self.register_buffer("quantiles", torch.tensor([0.5, 0.1, 0.9]))

    @property
    def metrics(self):
        return ("own_head.share_inside",)

    @classmethod
    def refuses(cls, column):
        return None if column.torch_dtype.is_floating_point else f"'{column.name}'"

    def forward(self, rows):
        return self.linear(rows)

    def losses(self, raw, targets):
        error = targets - raw
        pinball = torch.maximum(self.quantiles * error, (self.quantiles - 1) * error)
        return torch.where(self.measured(targets), pinball, 0.0).mean(1)

    def decode(self, raw):
        return torch.cat([raw[:, :1], raw[:, 1:].sort(1).values], 1).unsqueeze(1)

    def metric_inputs(self, predicted, targets):
        known = self.is_measured(targets)
        ends = [predicted.value, predicted.parts["low"], predicted.parts["high"]]
        return {self.targets[0]: (torch.cat(ends, 1)[known], targets[known, 0])}

    def plot(self, rows):
        figure = Figure()
        figure.subplots().set_title("a picture of intervals")
        return figure
'''

CONFIG = """
defaults: [gcn, _self_]
head:
  _target_: own_head.IntervalHead
  _partial_: true
"""

METRIC = '''
from graphfold.metrics import metric


@metric(task="regression", higher_is_better=False)
def largest_error(predicted, target):
    """The largest error of all."""
    return (predicted - target).abs().max()
'''


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with the two files."""
    (tmp_path / "own_head.py").write_text(HEAD)
    (tmp_path / "own_metric.py").write_text(METRIC)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_head", "own_metric"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_head_brings_its_metrics_columns_and_picture(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (packages / "conf" / "model").mkdir(parents=True)
    (packages / "conf" / "model" / "interval.yaml").write_text(CONFIG)
    table = write_molecules(packages / "m.csv")
    folder = train(
        packages / "run", "--config-dir", str(packages / "conf"), *SMALL, "model=interval",
        f"data.path={table}", "data.target_columns=[c]", draws=True,
    )  # fmt: skip
    trained = read_json(folder / "metrics.json")
    assert 0 <= trained["test/share_inside"] <= 1
    assert set(trained) == {f"{p}/{m}" for p in ("val", "test") for m in NAMES}
    assert "a picture of intervals" in (folder / "report.html").read_text()

    for words in (["evaluate", folder], ["predict", folder, table]):
        assert run(*words) == 2
        assert "add --trust own_head" in capsys.readouterr().err
    out, again = packages / "out.csv", packages / "metrics.json"
    assert run("evaluate", folder, "--json", again, "--trust", "own_head") == 0
    assert read_json(again) == trained
    assert run("predict", folder, table, "--output", out, "--trust", "own_head") == 0
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-4:] == ["c_pred", "c_low", "c_high", "reason"]
    assert all(float(row["c_low"]) <= float(row["c_high"]) for row in rows)
    (item,) = graphfold.load(folder, trust=["own_head"]).predict(["CCO"])
    assert item["low"] <= item["high"]


NAMES = ("share_inside", "loss", "coverage")


def test_a_metric_is_computed_and_chooses_the_checkpoint(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(packages / "m.csv")
    folder = train(
        packages / "run", *SMALL, f"data.path={table}", "data.target_columns=['a b',c]",
        "metrics=[rmse,own_metric.largest_error]", "monitor=val/largest_error/c",
        "callbacks=early_stopping", "lr_scheduler=plateau", "trainer.max_epochs=4",
    )  # fmt: skip
    trained = read_json(folder / "metrics.json")
    assert {"test/rmse", "test/largest_error/a b", "test/largest_error/c"} <= set(trained)
    assert "test/mae" not in trained
    with (folder / "metrics.csv").open(newline="") as file:
        history = [float(row["val/largest_error/c"]) for row in csv.DictReader(file)]
    assert trained["val/largest_error/c"] == pytest.approx(min(history))

    assert run("evaluate", folder) == 2
    assert "add --trust own_metric" in capsys.readouterr().err
    again = packages / "metrics.json"
    assert run("evaluate", folder, "--json", again, "--trust", "own_metric") == 0
    assert read_json(again) == trained
    assert run("predict", folder, table, "--trust", "own_metric") == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("metrics=[own_metric.largest_error]", "is for regression predictions, but the head's"),
        ("metrics=[own_metric.smallest_error]", "own_metric has no 'smallest_error'"),
        ("metrics=[acuracy]", "Did you mean 'accuracy'?"),
        ("metrics=[mcc,mcc]", "it is a list of different names"),
    ],
)
def test_wrong_metrics_are_refused_before_training(
    packages: Path, setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = f"data.cache_dir={packages}/cache"
    words = [*listops(setting), cache, f"hydra.run.dir={packages / 'run'}"]
    assert run("train", *words) == 2
    assert message in capsys.readouterr().err
    assert not (packages / "run").exists()
