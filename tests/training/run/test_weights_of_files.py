"""Weights that are no numbers, or not those of the model that a checkpoint describes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training.tiny_runs import listops, run, train, write_molecules

from graphfold.errors import CheckpointError
from graphfold.training.run import weights as limits
from graphfold.training.run.weights import SizeLimit

SMALL = ["model.hidden_size=4", "model.fuse=false", "trainer.max_epochs=1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small network on molecules."""
    folder = tmp_path_factory.mktemp("weights")
    table = write_molecules(folder / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "model=dmpnn"]
    return train(folder / "run", *own, *SMALL)


def edited(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint whose content is changed; valid, but not what training wrote."""
    content = torch.load(path, weights_only=True)
    config = json.loads(content["config"])
    whole = {**content, "config": config}
    change(whole)
    torch.save({**whole, "config": json.dumps(whole["config"])}, target)
    return target


def a_weight(content: dict[str, Any]) -> str:
    return next(n for n, w in content["state_dict"].items() if w.is_floating_point() and w.dim())


CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "complex": (lambda w: w.to(torch.complex64), "holds complex numbers, not real ones"),
    "whole": (lambda w: w.long(), "holds whole numbers, not real ones"),
    "logical": (lambda w: w.bool(), "holds logical numbers, not real ones"),
    "nan": (lambda w: w * float("nan"), "has values that are no finite numbers"),
    "infinite": (lambda w: w + float("inf"), "has values that are no finite numbers"),
    "sparse": (lambda w: w.to_sparse(), "is sparse or quantized"),
    "expanded": (lambda w: torch.zeros(1).expand(w.shape), "is larger than the numbers that"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_weights_of_another_kind_are_refused_and_named(
    kind: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(content: dict[str, Any]) -> None:
        name = a_weight(content)
        content["state_dict"][name] = CHANGES[kind][0](content["state_dict"][name])

    path = edited(finished / "checkpoints" / "best.ckpt", tmp_path / "x.ckpt", change)
    table = finished.parent / "m.csv"
    again = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "model=dmpnn"]
    again += [*SMALL, f"init_from={path}", f"hydra.run.dir={tmp_path}/r"]
    for command in (["evaluate", path], ["predict", path, table], ["train", *again]):
        assert run(*command) == 2
        error = capsys.readouterr().err
        assert "x.ckpt: the weight " in error
        assert CHANGES[kind][1] in error


def change_config(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        node = content["config"]
        *above, last = key.split(".")
        for part in above:
            node = node[int(part) if isinstance(node, list) else part]
        assert last in node or key == "ensemble"
        node[last] = value

    return change


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ensemble", 1_000_000_000, "ensemble"),
        ("ensemble", 3, "its config says ensemble: 3, and it has the weights of 1"),
        ("ensemble", "x", "its config says ensemble: 'x', and it has the weights of 1"),
        ("ensemble", True, "its config says ensemble: True"),
        ("model.encoder.size", 1_000_000_000, "far larger than the weights in the file"),
        ("model.cells.0.bond.hidden_size", 100_000_000, "far larger than the weights in the file"),
        ("model.cells.1.atom.hidden_size", 1_000_000, "far larger than the weights in the file"),
        ("model.passes.0.rounds", 1_000_000_000, "Ask for at most 10,000"),
        ("dropout_samples", 1_000_000_000, "dropout_samples is 1000000000, but it must be"),
        ("threads", 1_000_000_000, "threads is 1000000000, but it must be"),
    ],
)
def test_a_config_that_asks_for_far_more_than_its_weights_is_refused_at_once(
    key: str,
    value: Any,
    message: str,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = edited(
        finished / "checkpoints" / "best.ckpt", tmp_path / "x.ckpt", change_config(key, value)
    )
    assert run("evaluate", path) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--debug" not in error
    assert run("train", *listops(), f"init_from={path}", f"hydra.run.dir={tmp_path}/r") == 2
    assert "--debug" not in capsys.readouterr().err


def test_a_wide_column_in_the_spec_makes_no_wide_table(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(content: dict[str, Any]) -> None:
        spec = content["spec"]
        content["spec"] = re.sub(r'"size": \d+', '"size": 4000000000', spec)
        assert content["spec"] != spec

    path = edited(finished / "checkpoints" / "best.ckpt", tmp_path / "x.ckpt", change)
    assert run("evaluate", path) == 2
    assert "x.ckpt: " in capsys.readouterr().err


def test_many_small_layers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.MORE_CALLS <= 100_000  # of some microseconds each
    monkeypatch.setattr(limits, "MORE_CALLS", 500)
    weights = {"weight": torch.zeros(3)}
    with SizeLimit(weights, Path("x.ckpt")):
        torch.nn.LSTM(10, 10, num_layers=20)
        torch.nn.Linear(1000, 1000)
    with pytest.raises(CheckpointError, match="far larger"), SizeLimit(weights, Path("x.ckpt")):
        torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(10**9)))


def test_building_within_the_limit_changes_no_bit() -> None:
    torch.manual_seed(0)
    plain = torch.nn.LSTM(10, 10, num_layers=2).state_dict()
    torch.manual_seed(0)
    with SizeLimit({}, Path("x.ckpt")):
        limited = torch.nn.LSTM(10, 10, num_layers=2).state_dict()
    assert all(torch.equal(plain[name], limited[name]) for name in plain)
