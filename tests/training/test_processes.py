"""Two gloo processes with half of each batch do what one process does with the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training.tiny_runs import listops, read_json, train, write_corpora

from graphfold.training.run.checkpoint import Checkpoint

PLAIN = ["optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.0", "lr_scheduler=constant"]


def train_apart(folder: Path, *overrides: str) -> Path:
    """Trains in two processes, started from a process of its own."""
    settings = [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]
    command = [sys.executable, "-m", "graphfold", "train", *overrides, "trainer.devices=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, *settings], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("epoch 1/") == 1
    return folder


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(folder / "checkpoints" / "last.ckpt").state_dict


@pytest.mark.slow
def test_same_gradients_and_same_metrics(tmp_path: Path) -> None:
    # 37 records: the last step is uneven, and so are the parts of val and test.
    sizes = ["data.train_size=37", "data.val_size=13", "data.test_size=11"]
    common = listops(*sizes, *PLAIN, "trainer.gradient_clip_val=null", "data.seed=3")
    whole = train(tmp_path / "one", *common, "data.batch_size=8")
    parts = train_apart(tmp_path / "two", *common, "data.batch_size=4")
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, atol=1e-6, rtol=1e-5)
    wanted = pytest.approx(read_json(whole / "metrics.json"), abs=1e-6)
    assert read_json(parts / "metrics.json") == wanted
    first, second = ((f / "metrics.csv").read_text().splitlines() for f in (whole, parts))
    for one, two in zip(first[1:], second[1:], strict=True):
        numbers = [float(cell) for cell in one.split(",")]
        assert [float(cell) for cell in two.split(",")] == pytest.approx(numbers, abs=1e-6)


@pytest.mark.slow
def test_per_node_with_uneven_shares(tmp_path: Path) -> None:
    root = write_corpora(tmp_path / "corpora")
    common = [
        "experiment=sst_tree_lstm", f"data.root={root}", "model.hidden_size=6", *PLAIN,
        "model.dropout=0.0", "trainer.max_epochs=1", "loss.reduction=per_node",
    ]  # fmt: skip
    whole = train(tmp_path / "one", *common, "data.batch_size=10")
    parts = train_apart(tmp_path / "two", *common, "data.batch_size=5")
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_blocks_are_made_anew_in_each_process(tmp_path: Path) -> None:
    root = write_corpora(tmp_path / "corpora")
    common = [
        "experiment=sst_blocks", f"data.root={root}", "model.hidden_size=6", *PLAIN,
        "model.dropout=0.0", "trainer.max_epochs=1",
    ]  # fmt: skip
    whole = train(tmp_path / "one", *common, "data.batch_size=10")
    parts = train_apart(tmp_path / "two", *common, "data.batch_size=5")
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, atol=1e-6, rtol=1e-5)
    wanted = pytest.approx(read_json(whole / "metrics.json"), abs=1e-6)
    assert read_json(parts / "metrics.json") == wanted


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_as_if_unbroken(tmp_path: Path) -> None:
    """Each process has its own masks of dropout, and goes on where its generators were."""
    words = [*listops("model.dropout=0.4", "lr_scheduler=constant", "callbacks=average")]
    whole = train_apart(tmp_path / "whole", *words, "trainer.max_epochs=2", "data.num_workers=0")
    broken = train_apart(tmp_path / "broken", *words, "trainer.max_epochs=1", "data.num_workers=0")
    command = [sys.executable, "-m", "graphfold", "train", f"resume={broken}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*command, "trainer.max_epochs=2"], env=environment, check=True)
    assert (broken / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert read_json(broken / "metrics.json") == read_json(whole / "metrics.json")
