"""Two processes with half of each batch do what one process does with the whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from training.one_step import both_agree, take_step
from training.tiny_runs import listops, read_json, train, write_corpora

from graphfold.training.run.checkpoint import Checkpoint

PLAIN = ["optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.0", "lr_scheduler=constant"]

COMMAND = (sys.executable, "-m", "graphfold", "train")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def settings(folder: Path) -> list[str]:
    return [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]


def train_in_two(folder: Path, *overrides: str, members: int = 1) -> Path:
    """Trains in two processes, which the command starts."""
    words = [*COMMAND, *overrides, "trainer.devices=2", *settings(folder)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines()), done.stderr
    assert done.stdout.count("epoch 1/") == members
    assert not list(folder.rglob(".*"))
    return folder


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return Checkpoint.load(folder / "checkpoints" / "last.ckpt").state_dict


#: Overrides of tiny runs without random numbers in a step; {table} is one of molecules.
MODELS = {
    "tree": [*listops("data.train_size=37", "data.val_size=13"), "data.seed=3"],
    "dmpnn": [
        *("data=smiles", "data.path={table}", "data.target_columns=[b,c]", "model=dmpnn"),
        *("model.hidden_size=8", "model.run=eager", "data.seed=3", "trainer.max_epochs=2"),
    ],
}


def words_of(model: str, tmp_path: Path) -> list[str]:
    table = tmp_path / "m.csv"
    values = [(k * 7 % 11 if k % 3 else "", k * 5 % 13 if k % 4 else "") for k in range(37)]
    rows = [f"{'C' * (k % 19 + 1)}{'NO'[k % 2]},{b},{c}" for k, (b, c) in enumerate(values)]
    table.write_text("\n".join(["smiles,b,c", *rows]))
    return [*(word.format(table=table) for word in MODELS[model]), "model.dropout=0.0", *PLAIN]


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_many_steps_of_two_are_those_of_one_with_twice_the_batch(
    model: str, tmp_path: Path
) -> None:
    words = [*words_of(model, tmp_path), f"data.cache_dir={tmp_path}/cache", "trainer.max_epochs=3"]
    whole = take_step(*words, "data.batch_size=8")
    parts = take_step(*words, "data.batch_size=4", devices=2)
    both_agree(parts, whole)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_losses_of_nodes_count_alike_in_uneven_shares(tmp_path: Path) -> None:
    words = ["experiment=sst_tree_lstm", f"data.root={write_corpora(tmp_path)}"]
    words += ["model.hidden_size=6", "model.dropout=0.0", "loss.reduction=per_node"]
    words += [f"data.cache_dir={tmp_path}/cache"]
    both_agree(take_step(*words, devices=2), take_step(*words))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "members"), [("tree", 1), ("dmpnn", 2)])
def test_a_run_ends_with_the_weights_of_one_process(
    model: str, members: int, tmp_path: Path
) -> None:
    words = [*words_of(model, tmp_path), f"ensemble={members}"]
    whole = train(tmp_path / "one", *words, "data.batch_size=8")
    parts = train_in_two(tmp_path / "two", *words, "data.batch_size=4", members=members)
    folders = [folder for folder in (whole / "members").glob("*") if folder.is_dir()] or [whole]
    assert len(folders) == members
    for folder in folders:
        other = parameters(parts / folder.relative_to(whole))
        for name, value in parameters(folder).items():
            torch.testing.assert_close(other[name], value, atol=1e-5, rtol=1e-5)
    one, two = (read_json(folder / "metrics.json") for folder in (whole, parts))
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert two[name] == (value and pytest.approx(value, abs=1e-5, rel=1e-5)), name


@pytest.mark.slow
def test_a_killed_process_ends_the_run_which_goes_on_as_if_unbroken(tmp_path: Path) -> None:
    """Each process has its own masks of dropout, and goes on where its generators were."""
    words = [*listops("model.dropout=0.4", "lr_scheduler=constant", "callbacks=average")]
    words += ["data.num_workers=0", "trainer.max_epochs=40"]
    unbroken = train_in_two(tmp_path / "unbroken", *words)
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [*COMMAND, *words, "trainer.devices=2", *settings(folder)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (second,) = (
        child for child in children if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes()
    )
    os.kill(int(second), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "resume=" in errors
    assert 0 < len((folder / "metrics.csv").read_text().splitlines()) < 41
    subprocess.run([*COMMAND, f"resume={folder}"], env=environment(), check=True)
    assert (folder / "metrics.csv").read_text() == (unbroken / "metrics.csv").read_text()
    assert read_json(folder / "metrics.json") == read_json(unbroken / "metrics.json")


@pytest.mark.slow
def test_a_fault_of_both_processes_is_reported_once(tmp_path: Path) -> None:
    words = [*listops("data.train_size=1", "data.val_size=0"), "trainer.devices=2"]
    words = [*COMMAND, *words, *settings(tmp_path / "run")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1


#: Ends the second process after the first epoch of the first start.
KILLER = """
import os
from graphfold.training import Callback

class Killer(Callback):
    def on_epoch_saved(self, loop):
        is_first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if is_first_start and loop.epoch == 0 and not loop.is_first:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_torchrun_starts_a_run_again_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text(KILLER)
    whole, parts = tmp_path / "one", tmp_path / "two"
    words = [*words_of("tree", tmp_path), "trainer.max_epochs=3", "data.batch_size=4"]
    train_in_two(whole, *words)
    command = [
        *TORCHRUN,
        "--max-restarts=1",
        *COMMAND[1:],
        "+callbacks.killer._target_=killer.Killer",
    ]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command += [*words, *settings(parts), "resume=auto"]
    done = subprocess.run(
        command, env=environment(PYTHONPATH=path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/3") == 1
    assert "goes on after epoch 1" in done.stdout
    assert read_json(parts / "metrics.json") == read_json(whole / "metrics.json")
