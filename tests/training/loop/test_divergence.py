"""A loss that cannot be ends training with a message; what was written before stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training.tiny_runs import run, train, write_molecules

from graphfold.layers import RegressionHead
from graphfold.layers.heads.numbers import NumberHead

Losses = Callable[[RegressionHead, Tensor, Tensor], Tensor]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch."""
    folder = tmp_path_factory.mktemp("divergence")
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']"]
    words += ["model.hidden_size=4", "trainer.max_epochs=1", "data.split=random"]
    return train(folder / "run", *words)


@pytest.fixture
def begun(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def nan_in_training(head: RegressionHead, raw: Tensor, wanted: Tensor) -> Tensor:
    losses = (raw - wanted).square()
    return losses / 0 * 0 if head.training else losses


def nan_in_validation(head: RegressionHead, raw: Tensor, wanted: Tensor) -> Tensor:
    losses = (raw - wanted).square()
    return losses if head.training else torch.full_like(losses, float("nan"))


def infinite(head: RegressionHead, raw: Tensor, wanted: Tensor) -> Tensor:
    return (raw - wanted).square() / 0


def negative(head: RegressionHead, raw: Tensor, wanted: Tensor) -> Tensor:
    return -(raw - wanted).square()


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (nan_in_training, "the loss of epoch 2 is nan, so training ends. The checkpoints of the"),
        (nan_in_validation, "the loss of the validation part after epoch 2 is nan, so training"),
        (infinite, "the loss of epoch 2 is inf, so training ends"),
        (negative, "in epoch 2, but RegressionHead has none below zero"),
    ],
)
def test_training_ends_and_keeps_what_it_has(
    losses: Losses,
    message: str,
    begun: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [*sorted(begun.rglob("*.ckpt")), begun / "metrics.csv", begun / "metrics.json"]
    before = [path.read_bytes() for path in files]
    assert len(files) == 4
    monkeypatch.setattr(RegressionHead, "target_losses", losses)
    assert run("train", f"resume={begun}", "trainer.max_epochs=3") == 1
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert [path.read_bytes() for path in files] == before


def test_a_rate_that_is_too_high(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "optimizer=sgd"]
    words += [f"data.cache_dir={tmp_path}", "logger=none", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *words, "optimizer.lr=1e30", "data.batch_size=4") == 1
    assert "Take a lower optimizer.lr or trainer.gradient_clip_val=1" in capsys.readouterr().err
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_a_log_likelihood_may_be_negative(tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']"]
    words += ["+model.head.loss=mean_variance", "model.hidden_size=4", "trainer.max_epochs=1"]
    original = NumberHead.losses

    def lower(self: NumberHead, raw: Tensor, targets: Tensor) -> Tensor:
        return original(self, raw, targets) - 10

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumberHead, "losses", lower)
        train(tmp_path / "run", *words)
