"""A run or a search from elsewhere never writes through the links in its folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from thinned import thinned
from training.tiny_runs import listops, run, write_molecules

from graphfold.files import refuse_links

#: What a training writes.
WRITTEN = (
    *(".lock", "config.yaml", "metrics.json", "metrics.csv", "predictions.csv", "split.csv"),
    *("report.html", "checkpoints/best.ckpt", "checkpoints/last.ckpt"),
    *("checkpoints", "tensorboard"),
)

#: A link to a file or a folder, and one to nothing yet.
CASES = [(name, kind) for name in WRITTEN for kind in ("link", "hanging")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    words = [*listops("trainer.max_epochs=1"), f"hydra.run.dir={folder}/run"]
    assert run("train", *words, f"data.cache_dir={folder}/cache") == 0  # with its logger
    return folder / "run"


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


#: Those that run with every change.
KEPT = (".lock", "checkpoints/last.ckpt", "checkpoints", "tensorboard")


@pytest.mark.parametrize(
    ("name", "kind"),
    thinned(CASES, [*((name, "link") for name in KEPT), ("metrics.json", "hanging")]),
)
def test_resuming_writes_through_no_link(
    name: str, kind: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, outside = tmp_path / "foreign", tmp_path / "outside"
    shutil.copytree(finished, foreign)
    outside.mkdir()
    place, target = foreign / name, outside / "mine"
    if place.exists() and kind == "link":
        os.rename(place, target)
    elif place.exists():
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    elif kind == "link":
        target.write_text("mine")
    place.symlink_to(target)
    before = contents(outside)
    assert run("train", f"resume={foreign}", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert "is a link, a pipe or a device" in error or (name, kind) == ("config.yaml", "hanging")
    assert contents(outside) == before


def test_a_new_run_writes_through_no_link_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.json").symlink_to(tmp_path / "mine")
    words = [*listops("trainer.max_epochs=1"), f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *words, f"data.cache_dir={tmp_path}/cache") == 2
    assert "metrics.json: is a link" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_the_folder_itself_may_be_a_link(finished: Path, tmp_path: Path) -> None:
    foreign = Path(shutil.copytree(finished, tmp_path / "foreign"))
    (tmp_path / "typed").symlink_to(foreign)
    assert run("train", f"resume={tmp_path}/typed", "trainer.max_epochs=2") == 0
    assert "2," in (foreign / "metrics.csv").read_text()


def test_a_pipe_is_refused_and_what_is_not_written_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to(tmp_path)  # W&B has such links in the folders of its runs
    os.mkfifo(tmp_path / "split.csv")
    refuse_links(tmp_path, ["checkpoints", "config.yaml"])
    with pytest.raises(ValueError, match=r"split.csv: is a link, a pipe or a device"):
        refuse_links(tmp_path, ["split.csv"])


@pytest.mark.parametrize("name", ["study.log", "trials"])
def test_a_search_writes_through_no_link(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, foreign = write_molecules(tmp_path / "m.csv"), tmp_path / "s"
    foreign.mkdir()
    (foreign / name).symlink_to(tmp_path / "mine")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "optimizer.lr=0.1,0.2"]
    assert run("tune", *words, f"hydra.run.dir={foreign}") == 2
    assert "is a link, a pipe or a device" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_resuming_removes_no_temporary_files_of_others(finished: Path, tmp_path: Path) -> None:
    foreign = Path(shutil.copytree(finished, tmp_path / "foreign"))
    mine = [".notes.tmp", ".config.yaml.tmp", "checkpoints/.x.tmp", "notes/.metrics.json.ab1.tmp"]
    ours = [".config.yaml.a1_b2c3d.tmp", "checkpoints/.last.ckpt.abcdefgh.tmp"]
    for name in (*mine, *ours):
        (foreign / name).parent.mkdir(exist_ok=True)
        (foreign / name).write_text("x")
    assert run("train", f"resume={foreign}") == 0
    assert [name for name in (*mine, *ours) if (foreign / name).exists()] == mine
