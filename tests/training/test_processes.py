"""Two gloo processes with half of each batch do what one process does with the whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from training.launches import IN_SHELL
from training.one_step import both_agree, take_step
from training.tiny_runs import listops, read_json, train, write_corpora

from graphfold.training.run.checkpoint import Checkpoint

PLAIN = ["optimizer=sgd", "optimizer.lr=0.1", "optimizer.momentum=0.0", "lr_scheduler=constant"]


#: What starts two processes.
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def train_apart(folder: Path, *overrides: str, members: int = 1) -> Path:
    """Trains in two processes, started from a process of its own."""
    settings = [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]
    command = [sys.executable, "-m", "graphfold", "train", *overrides, "trainer.devices=2"]
    return check_run(folder, [*command, *settings], members)


def train_by_torchrun(folder: Path, *overrides: str, members: int = 1) -> Path:
    """Trains in two processes of torchrun."""
    settings = [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]
    command = [sys.executable, *TORCHRUN, "-m", "graphfold", "train", *overrides]
    return check_run(folder, [*command, *settings], members)


def train_by_srun(folder: Path, *overrides: str) -> Path:
    """Trains in the tasks of two machines, which this one plays both."""
    settings = [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]
    command = [sys.executable, "-m", "graphfold", "train", *overrides, *settings]
    with socket.create_server(("", 0)) as free:
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    tasks = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                **IN_SHELL,  # but for the terminal
                **meeting,
                "SLURM_PROCID": str(number),
                "SLURM_NODEID": str(number),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for number in range(2)
    ]
    outputs = [task.communicate(timeout=120) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], outputs
    assert outputs[0][0].count("epoch 1/") == 1
    assert [outputs[0][1], *outputs[1]] == ["", "", ""]
    assert not list(folder.rglob(".*"))
    return folder


def check_run(folder: Path, command: list[str], members: int) -> Path:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("epoch 1/") == members
    assert not list(folder.rglob(".*"))
    return folder


#: Overrides of tiny runs without random numbers in a step; {table} is one of molecules.
MODELS = {
    "tree": [*listops("data.train_size=37", "data.val_size=13"), "data.seed=3"],
    "dmpnn": [
        *("data=smiles", "data.path={table}", "data.target_columns=[b,c]", "model=dmpnn"),
        *("model.hidden_size=8", "model.fuse=false", "data.seed=3", "trainer.max_epochs=2"),
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


@pytest.mark.slow
@pytest.mark.parametrize(("model", "members"), [("tree", 1), ("dmpnn", 1), ("dmpnn", 2)])
def test_torchrun_ends_with_the_weights_of_one_process(
    model: str, members: int, tmp_path: Path
) -> None:
    words = [*words_of(model, tmp_path), f"ensemble={members}"]
    whole = train(tmp_path / "one", *words, "data.batch_size=8")
    parts = train_by_torchrun(tmp_path / "two", *words, "data.batch_size=4", members=members)
    folders = [folder for folder in (whole / "members").glob("*") if folder.is_dir()] or [whole]
    assert len(folders) == members
    for folder in folders:
        other = parts / folder.relative_to(whole)
        for name, value in parameters(folder).items():
            torch.testing.assert_close(parameters(other)[name], value, atol=1e-5, rtol=1e-5)
    wanted = pytest.approx(read_json(whole / "metrics.json"), abs=1e-5, rel=1e-5)
    assert read_json(parts / "metrics.json") == wanted


@pytest.mark.slow
def test_srun_ends_with_the_weights_of_one_process(tmp_path: Path) -> None:
    words = words_of("tree", tmp_path)
    whole = train(tmp_path / "one", *words, "data.batch_size=8")
    parts = train_by_srun(tmp_path / "two", *words, "data.batch_size=4", "trainer.num_nodes=2")
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, atol=1e-5, rtol=1e-5)
    wanted = pytest.approx(read_json(whole / "metrics.json"), abs=1e-5, rel=1e-5)
    assert read_json(parts / "metrics.json") == wanted


@pytest.mark.slow
def test_a_killed_process_of_torchrun_ends_the_run_which_can_be_continued(tmp_path: Path) -> None:
    words = [*words_of("tree", tmp_path), "data.batch_size=4", "callbacks=average"]
    unbroken = train_by_torchrun(tmp_path / "unbroken", *words, "trainer.max_epochs=40")
    folder = tmp_path / "run"
    settings = [f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.run.dir={folder}"]
    command = [sys.executable, *TORCHRUN, "-m", "graphfold", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [*command, *words, *settings, "trainer.max_epochs=40"],
        env=environment,
        stdout=subprocess.PIPE,
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
    assert "error: process 0 of 2 can no longer reach the others: one of them has end" in errors
    assert 0 < len((folder / "metrics.csv").read_text().splitlines()) < 41
    resumed = [*command, f"resume={folder}"]
    subprocess.run(resumed, env=environment, check=True, capture_output=True)
    assert (folder / "metrics.csv").read_text() == (unbroken / "metrics.csv").read_text()
    assert read_json(folder / "metrics.json") == read_json(unbroken / "metrics.json")


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
    train_by_torchrun(whole, *words)
    settings = [f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.run.dir={parts}"]
    killer = "+callbacks.killer._target_=killer.Killer"
    command = [sys.executable, *TORCHRUN, "--max-restarts=1", "-m", "graphfold", "train", killer]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command += [*words, *settings, "resume=auto"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/3") == 1
    assert "goes on after epoch 1" in done.stdout
    assert read_json(parts / "metrics.json") == read_json(whole / "metrics.json")
