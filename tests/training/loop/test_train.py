"""Training from start to end: the run folder, resuming, and what a run depends on."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from shared_folders import made_once
from training.tiny_runs import listops, read_json, run, train, write_molecules

from graphfold import recipe as training
from graphfold.training.run.best_and_last import BestAndLast
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def weights(folder: Path, name: str = "best") -> dict[str, torch.Tensor]:
    return Checkpoint.load(folder / "checkpoints" / f"{name}.ckpt").state_dict


def test_run_folder_holds_everything(listops_run: Path) -> None:
    names = {path.name for path in listops_run.iterdir()}
    assert names == {
        "config.yaml",
        "checkpoints",
        "metrics.json",
        "metrics.csv",
        "report.html",
        "predictions.csv",
        "split.csv",
    }
    assert {p.name for p in (listops_run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert "${" not in (listops_run / "config.yaml").read_text()
    metrics = read_json(listops_run / "metrics.json")
    assert set(metrics) == {
        f"{part}/{name}"
        for part in ("val", "test")
        for name in ("accuracy", "macro_f1", "mcc", "ece", "loss", "coverage")
    }
    assert metrics["test/coverage"] == 1.0
    table = rows(listops_run)
    assert [row["epoch"] for row in table] == ["1", "2"]
    assert set(table[0]) >= {"train/loss", "val/accuracy", "val/loss", "lr"}
    best = max(float(row["val/accuracy"]) for row in table)
    assert best == metrics["val/accuracy"]


def test_the_best_epoch_is_kept(tmp_path: Path) -> None:
    """With a learning rate that ruins the model, the first epoch is the best."""
    more = ["monitor=val/loss", "optimizer.lr=3.0", "trainer.max_epochs=3"]
    folder = train(tmp_path / "run", *listops(*more, "lr_scheduler=constant"))
    losses = [float(row["val/loss"]) for row in rows(folder)]
    best = losses.index(min(losses))
    assert Checkpoint.load(folder / "checkpoints" / "best.ckpt").progress["epoch"] == best
    assert read_json(folder / "metrics.json")["val/loss"] == min(losses)


def test_an_earlier_run_is_moved_aside(
    listops_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = listops_copy
    first = read_json(folder / "metrics.json")
    train(folder, *listops("trainer.max_epochs=1", "seed=5"))
    said = capsys.readouterr().out
    assert f"an earlier run: it is now in {folder / 'earlier-1'}. Give resume=auto to go on" in said
    assert read_json(folder / "earlier-1" / "metrics.json") == first
    assert (folder / "earlier-1" / "checkpoints" / "last.ckpt").is_file()


def into(folder: Path) -> list[str]:
    return [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]


class Interrupted:
    """Ctrl-C in the middle of the second epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.batches = 0

    def __enter__(self) -> None:
        original = training.Loop.training_step

        def step(loop: training.Loop, batch: object, index: int) -> None:
            self.batches += 1
            if self.batches == 8:
                raise KeyboardInterrupt
            original(loop, batch, index)  # type: ignore[arg-type]

        self.monkeypatch.setattr(training.Loop, "training_step", step)

    def __exit__(self, *_: object) -> None:
        self.monkeypatch.undo()


#: A run with draws, moments of gradients and a schedule, which go on after an interruption.
UNBROKEN = listops("model.dropout=0.4", "optimizer=adam", "lr_scheduler=step")
UNBROKEN += ["lr_scheduler.step_size=2", "lr_scheduler.gamma=0.1", "trainer.max_epochs=3"]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run without an interruption."""
    return made_once(tmp_path_factory, "unbroken", lambda folder: train(folder, *UNBROKEN))


def test_a_resumed_run_ends_as_an_unbroken_one(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = tmp_path / "broken"
    before = signal.getsignal(signal.SIGINT)
    with Interrupted(monkeypatch):
        assert run("train", *UNBROKEN, *into(broken)) == 1
    assert f"graphfold train resume={broken}" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert len(rows(broken)) == 1
    assert run("train", f"resume={broken}") == 0
    assert "goes on after epoch 1" in capsys.readouterr().out
    assert read_json(broken / "metrics.json") == read_json(whole / "metrics.json")
    assert (broken / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    for name, value in weights(whole, "last").items():
        assert torch.equal(value, weights(broken, "last")[name])


def test_resuming_a_finished_run_scores_it_again(
    listops_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_json(listops_copy / "metrics.json")
    (listops_copy / "metrics.json").unlink()
    assert run("train", f"resume={listops_copy}") == 0
    assert "is finished: its best checkpoint is scored again" in capsys.readouterr().out
    assert read_json(listops_copy / "metrics.json") == before


def test_a_finished_run_goes_on_for_more_epochs(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *UNBROKEN, "trainer.max_epochs=2")
    assert run("train", f"resume={folder}", "trainer.max_epochs=1") == 2
    assert "but the run has 2 epochs already" in capsys.readouterr().err
    assert run("train", f"resume={folder}", "trainer.max_epochs=3") == 0
    captured = capsys.readouterr()
    assert "goes on after epoch 2" in captured.out
    assert "T_max" not in captured.err
    assert (folder / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert read_json(folder / "metrics.json") == read_json(whole / "metrics.json")


def test_more_epochs_than_the_schedule_was_made_for_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1", "lr_scheduler=cosine"))
    assert run("train", f"resume={folder}", "trainer.max_epochs=2") == 0
    assert "lr_scheduler.T_max is 1: the schedule of the" in capsys.readouterr().err


def test_resuming_without_a_checkpoint_starts_again(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_text((listops_run / "config.yaml").read_text())
    assert run("train", f"resume={tmp_path / 'new'}") == 0
    assert "no checkpoints/last.ckpt yet, so it starts anew" in capsys.readouterr().out
    assert read_json(tmp_path / "new" / "metrics.json") == read_json(listops_run / "metrics.json")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted in its second epoch."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch, Interrupted(patch):
        assert run("train", *listops("trainer.max_epochs=3"), *into(folder)) == 1
    return folder


@pytest.fixture
def begun(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def test_one_command_begins_a_run_and_goes_on_with_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *UNBROKEN, *into(tmp_path / "auto"), "resume=auto"]
    with Interrupted(monkeypatch):
        assert run(*words) == 1
    assert "goes on" not in capsys.readouterr().out
    assert run(*words) == 0
    assert "goes on after epoch 1" in capsys.readouterr().out
    assert read_json(tmp_path / "auto" / "metrics.json") == read_json(whole / "metrics.json")
    assert (tmp_path / "auto" / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert run(*words) == 0
    assert "is finished" in capsys.readouterr().out
    assert not list(tmp_path.glob("auto/earlier-*"))


def test_a_run_that_was_ended_before_its_first_epoch_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("half")
    train(tmp_path / "run", *listops("trainer.max_epochs=1", "resume=auto"))
    assert "earlier" not in capsys.readouterr().out
    assert not list(tmp_path.glob("run/earlier-*"))


def test_another_start_gives_more_epochs(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*listops("trainer.max_epochs=4", "resume=auto"), *into(begun)]
    assert run("train", *words) == 0
    assert "goes on after epoch 1" in capsys.readouterr().out
    assert len(rows(begun)) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimizer.lr=0.5"], "a run with other settings: optimizer.lr. Give those of"),
        (["model.hidden_size=4"], "other settings: model.hidden_size"),
        (
            ["hydra.run.dir=runs/${now:%H}"],
            "goes on in the folder of the run, but each start",
        ),
    ],
)
def test_changes_that_a_started_run_refuses(
    words: list[str], message: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (begun / "config.yaml").read_text()
    more = listops("trainer.max_epochs=3", "resume=auto")
    assert run("train", *more, *into(begun), *words) == 2
    assert message in capsys.readouterr().err
    assert (begun / "config.yaml").read_text() == before


def test_python_goes_on_in_the_folder_that_it_gives(begun: Path) -> None:
    words = [*listops("trainer.max_epochs=3", "resume=auto"), *into(begun)[:2]]
    assert training.train(words, folder=begun).metrics == read_json(begun / "metrics.json")
    assert len(rows(begun)) == 3


def test_kill_9_leaves_a_resumable_run(tmp_path: Path) -> None:
    overrides = listops("trainer.max_epochs=12", "model.dropout=0.3")
    whole = train(tmp_path / "whole", *overrides)
    killed = tmp_path / "killed"
    settings = [f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.run.dir={killed}"]
    command = [sys.executable, "-m", "graphfold", "train", *overrides, *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    last = killed / "checkpoints" / "last.ckpt"
    while not last.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    (killed / "checkpoints" / ".last.ckpt.abc.tmp").write_bytes(b"half")
    assert Checkpoint.load(last).progress["epoch"] < 11
    torch.set_num_threads(1)
    assert run("train", f"resume={killed}") == 0
    assert read_json(killed / "metrics.json") == read_json(whole / "metrics.json")
    assert (killed / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert not list(killed.rglob("*.tmp"))


def test_data_that_changed_cannot_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    overrides = ["data=smiles", f"data.path={table}", "data.target_columns=[c]"]
    small = ["model.hidden_size=8", "trainer.max_epochs=3", "data.batch_size=8"]
    settings = [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path / 'run'}"]
    with Interrupted(monkeypatch):
        assert run("train", *overrides, *small, *settings) == 1
    table.write_text(table.read_text() + "z,CCO,1,1,1\n")
    assert run("train", f"resume={tmp_path / 'run'}") == 2
    assert "m.csv: the file changed since the run split it" in capsys.readouterr().err


def test_monitor_must_be_a_metric_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path / 'run'}"]
    assert run("train", *listops("monitor=val/acuracy"), *settings) == 2
    assert "Did you mean 'val/accuracy'?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def keeper_of(monitor: str, mode: str) -> BestAndLast:
    common = Checkpoint({}, {}, {}, [], {}, torch.zeros(0))
    return BestAndLast(RunFolder(Path()), common, monitor, mode)


def test_an_undefined_monitor_falls_back_to_the_loss() -> None:
    keeper = keeper_of("val/roc_auc", "max")
    undefined = keeper._goodness({"val/roc_auc": None, "val/loss": 0.1})
    better = keeper._goodness({"val/roc_auc": None, "val/loss": 0.05})
    defined = keeper._goodness({"val/roc_auc": 0.2, "val/loss": 9.0})
    assert undefined < better < defined


def test_the_loss_decides_between_equal_epochs() -> None:
    keeper = keeper_of("val/accuracy", "max")
    first = keeper._goodness({"val/accuracy": 1.0, "val/loss": 0.5})
    second = keeper._goodness({"val/accuracy": 1.0, "val/loss": 0.25})
    unknown = keeper._goodness({"val/accuracy": 1.0, "val/loss": None})
    worse = keeper._goodness({"val/accuracy": 0.9, "val/loss": 0.01})
    assert worse < unknown < first < second


@pytest.mark.parametrize("precision", ["bf16-mixed", "64"])
def test_precision_is_that_of_the_run_in_evaluation_too(precision: str, tmp_path: Path) -> None:
    overrides = listops(f"trainer.precision={precision}", "trainer.max_epochs=1")
    folder = train(tmp_path / "run", *overrides)
    dtype = torch.float64 if precision.startswith("64") else torch.float32
    assert {v.dtype for v in weights(folder).values()} == {dtype}
    assert run("evaluate", folder, "--json", tmp_path / "e.json") == 0
    assert read_json(tmp_path / "e.json") == read_json(folder / "metrics.json")


def test_a_target_without_training_values_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["train"] * 8 + ["val"] * 2 + ["test"] * 2
    cells = [(part, n, "" if part == "train" else n) for n, part in enumerate(parts, start=1)]
    lines = [f"{'C' * n},{n},{value},{part}" for part, n, value in cells]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["smiles,y,z,set", *lines]))
    data = [
        "data=smiles",
        f"data.path={path}",
        "data.target_columns=[y,z]",
        "data.split_column=set",
    ]
    small = ["model=gcn", "model.hidden_size=4", "trainer.max_epochs=1"]
    train(tmp_path / "run", *data, "data.split=given", *small)
    assert "'z' is measured nowhere in the training part" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_a_gpu_trains_and_goes_on(precision: str, tmp_path: Path) -> None:
    words = listops("trainer.accelerator=gpu", f"trainer.precision={precision}", "model.run=eager")
    words += ["deterministic=true", "lr_scheduler=constant", "callbacks=average"]
    whole = train(tmp_path / "whole", *words, "trainer.max_epochs=2")
    broken = train(tmp_path / "broken", *words, "trainer.max_epochs=1")
    assert run("train", f"resume={broken}", "trainer.max_epochs=2") == 0
    for one, two in zip(rows(whole), rows(broken), strict=True):
        numbers = {name: float(cell) for name, cell in one.items() if cell}
        actual = {name: float(cell) for name, cell in two.items() if cell}
        assert actual == pytest.approx(numbers, rel=1e-5)
    assert run("evaluate", whole, "--json", tmp_path / "e.json") == 0
    assert read_json(tmp_path / "e.json") == pytest.approx(read_json(whole / "metrics.json"))
