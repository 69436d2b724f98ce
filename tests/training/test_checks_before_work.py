"""Whatever can be seen before the first epoch is refused there, and not after the last."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training.one_step import new_loop
from training.tiny_runs import run, write_corpora

from graphfold.inference.evaluation import rehearse
from graphfold.training.config.compose import compose

#: A head and a metric that fail only where a finished run is scored, described or drawn.
OWN = """
from graphfold.layers import RegressionHead
from graphfold.metrics import metric

class NoWords(RegressionHead):
    def output_columns(self, parts=None):
        raise RuntimeError("no words")

class NoPicture(RegressionHead):
    def plot(self, rows):
        raise RuntimeError("no picture")

@metric(task="regression")
def no_number(predicted, target):
    raise RuntimeError("no number")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of molecules with a number and a class."""
    folder = write_corpora(tmp_path_factory.mktemp("checks"))
    parts = ("train", "val", "test")
    rows = [f"{'C' * (1 + n // 3)}{'NOS'[n % 3]},{n},{n % 2},{parts[n % 3]}" for n in range(60)]
    (folder / "m.csv").write_text("\n".join(["smiles,y,kind,part", *rows]))
    (folder / "own_parts.py").write_text(OWN)
    return folder


def words(home: Path, *more: str) -> list[str]:
    return [
        "data=smiles", "model=gcn", "model.hidden_size=4", f"data.path={home}/m.csv",
        "data.split_column=part", "data.split=given", f"data.cache_dir={home}/cache",
        "model.run=eager", "logger=none", "trainer.max_epochs=1", "data.target_columns=[y]", *more,
    ]  # fmt: skip


CLASSES = ("data.target_columns=[kind]", "data.task=classification")
SICK = ("experiment=sick_tree_lstm", "+model.head.low=3", "+model.head.high=4")
CASES = {
    "intervals of classes": ([*CLASSES, "calibration.method=conformal"], "not for binary pred"),
    "temperature of numbers": (["calibration.method=temperature"], "not for regression predict"),
    "a list of widths": (
        ["+model.head.hidden_size=[300,300]"], "model.head.hidden_size is [300, 300], but",
    ),
    "a word for a probability": (["+model.head.dropout=much"], "dropout"),
    "a metric": (["metrics=[own_parts.no_number]"], "no number"),
    "words": (["model.head._target_=own_parts.NoWords"], "no words"),
    "a picture": (["model.head._target_=own_parts.NoPicture"], "no picture"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_before_the_first_epoch(
    name: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more, message = CASES[name]
    monkeypatch.syspath_prepend(home)
    folder = f"hydra.run.dir={tmp_path}/run"
    assert run("train", *words(home, *more), folder, draws=True) > 0
    said = capsys.readouterr()
    assert message in said.err
    assert "epoch 1" not in said.out
    assert not (tmp_path / "run").exists()


def test_a_score_outside_of_the_scale_is_refused_before_the_first_epoch(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = [f"data.root={home}", f"data.cache_dir={home}/cache", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *SICK, *root, "logger=none", "model.run=eager") == 2
    assert "outside 3 .. 4. Set low and high" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_rehearsal_leaves_nothing(home: Path) -> None:
    loop, data = new_loop(*words(home))
    config = compose(words(home)).config
    before = {name: value.clone() for name, value in loop.model.state_dict().items()}
    numbers = torch.get_rng_state()
    rehearse(config, loop.model, data)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert loop.model.training
    assert loop.model.network.execution == {}
    assert all(torch.equal(before[name], value) for name, value in loop.model.state_dict().items())
