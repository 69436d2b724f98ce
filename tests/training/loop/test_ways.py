"""Users are told how their cells run: once, and with the reason where one is not compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

from graphfold.batching.engine.compiled import choice
from graphfold.batching.native.library import why_missing
from graphfold.datasets.loading.data_module import DataModule
from graphfold.inference import predict
from graphfold.layers import NaryTreeLSTMCell
from graphfold.training.config.compose import compose
from graphfold.training.loop.ways import describe_ways
from graphfold.training.run.initial_weights import make_model

pytestmark = pytest.mark.skipif(
    why_missing(torch.float32) is not None, reason="there is no C compiler"
)


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tree-LSTM cells whose code cannot be compiled, and a process that has not said so yet."""
    right = NaryTreeLSTMCell.forward

    def forward(self, x, children):  # type: ignore[no-untyped-def]
        if float(children.stack("h").sum()) > 1e9:
            raise AssertionError
        return right(self, x, children)

    monkeypatch.setattr(NaryTreeLSTMCell, "forward", forward)
    monkeypatch.setattr(choice, "_SAID", set())
    return


def lines(text: str) -> list[str]:
    return re.findall(r"^cells: .*", text, flags=re.MULTILINE)


def test_training_and_verify_say_that_cells_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *listops())
    out, err = capsys.readouterr()
    assert lines(out) == ["cells: token, pair compiled"]
    assert out.index("\ncells: ") < out.index("\nepoch 1/2")
    assert "compiled" not in err
    assert run("verify", folder, "--policy", "depth", "--json", tmp_path / "v.json") == 0
    assert lines(capsys.readouterr().out) == ["cells: token, pair compiled"]
    rows = read_json(tmp_path / "v.json")["comparisons"]
    assert {row["cells"] for row in rows} == {"token, pair compiled"}


@pytest.mark.usefixtures("stubborn")
def test_a_cell_that_is_not_compiled_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "SMALL_FILE", 10_000)
    folder = train(tmp_path / "run", *listops())
    out, err = capsys.readouterr()
    (line,) = lines(out)
    assert re.fullmatch(r"cells: token, pair as it is \(NaryTreeLSTMCell: .+\)", line)
    warning = r"^warning: NaryTreeLSTMCell is not compiled: .+ It runs as it is, group by group"
    assert len(re.findall(warning, err, flags=re.MULTILINE)) == 1
    for words in (
        ["evaluate", folder],
        ["predict", folder, tmp_path / "trees.txt", "--output", tmp_path / "o.json"],
        ["predict", folder, tmp_path / "few.txt", "--output", tmp_path / "o.json"],
        ["verify", folder, "--policy", "depth"],
    ):
        text = "4\t( ( ( [MAX 2 ) 4 ) ] )\n3\t( ( ( [MAX 2 ) 3 ) ] )\n"
        (tmp_path / "trees.txt").write_text(text * (10_000 // len(text) + 1))
        (tmp_path / "few.txt").write_text(text)  # for few records cells are not compiled anyhow
        monkeypatch.setattr(choice, "_SAID", set())
        assert run(*words) == 0
        err = capsys.readouterr().err
        found = re.findall(warning, err, flags=re.MULTILINE)
        assert len(found) == (tmp_path / "few.txt" not in words), (words[0], err)


@pytest.mark.usefixtures("stubborn")
def test_fuse_true_demands_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    words = listops("model.fuse=true", f"data.cache_dir={tmp_path}", f"hydra.run.dir={folder}")
    assert run("train", *words) == 2
    assert "NaryTreeLSTMCell is not compiled: " in capsys.readouterr().err


def test_fuse_false_is_told_without_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", *listops("model.fuse=false"))
    out, err = capsys.readouterr()
    assert lines(out) == ["cells: token, pair as it is (fuse=False)"]
    assert "compiled" not in err


def test_a_model_shows_it(tmp_path: Path) -> None:
    config = compose(listops(f"data.cache_dir={tmp_path}")).config
    data = DataModule(**config["data"])
    data.prepare()
    model = make_model(config, data)[0]
    assert describe_ways(model) == ""
    model(model.plan(data.encoded("val")))
    assert "pair: NaryTreeLSTMCell -> h [8], c [8], compiled" in repr(model)
    model.network.ways |= {f"type {number}": "compiled" for number in range(9)}
    model.network.ways["odd"] = "as it is (it is\n  odd)"
    assert describe_ways(model) == "11 types compiled; odd as it is (it is odd)"
