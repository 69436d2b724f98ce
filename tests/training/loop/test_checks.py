"""Facts about a model that training checks: sharing of equal nodes, compiled cells."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

from graphfold.batching import Cell, Network
from graphfold.batching.engine.compiled import choice
from graphfold.batching.native.library import why_missing
from graphfold.blocks import FC
from graphfold.dag import TypedDAG
from graphfold.datasets.data_module import DataModule
from graphfold.inference import predict_files
from graphfold.layers import GraphModel, NaryTreeLSTMCell
from graphfold.layers.dropout import StateDropout
from graphfold.training.config.build_model import decide
from graphfold.training.config.compose import compose
from graphfold.training.loop.checks import (
    can_share,
    choose_sharing,
    describe_execution,
)
from graphfold.training.run.initial_weights import make_model


def make(*overrides: str) -> tuple[Any, TypedDAG]:
    config = compose(listops(*overrides)).config
    data = DataModule(**config.data)
    data.prepare()
    return make_model(decide(config, data), data), data.encoded("train")


COMPILED = pytest.mark.skipif(
    why_missing(torch.float32) is not None, reason="there is no C compiler"
)


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes Tree-LSTM cells that cannot be compiled, and forgets warnings of earlier tests."""
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


@COMPILED
def test_training_and_verify_say_that_cells_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *listops("model.run=auto"))
    out, err = capsys.readouterr()
    assert lines(out) == ["cells: token, pair compiled (native)"]
    assert out.index("\ncells: ") < out.index("\nepoch 1/2")
    assert "compiled" not in err
    assert run("verify", folder, "--json", tmp_path / "v.json") == 0
    assert lines(capsys.readouterr().out) == ["cells: token, pair compiled (native)"]
    rows = read_json(tmp_path / "v.json")["comparisons"]
    assert {row["cells"] for row in rows} == {"token, pair compiled (native)"}


@COMPILED
@pytest.mark.usefixtures("stubborn")
def test_a_cell_that_is_not_compiled_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_files, "SMALL_FILE", 10_000)
    folder = train(tmp_path / "run", *listops("model.run=auto"))
    out, err = capsys.readouterr()
    (line,) = lines(out)
    way = r"cells: token compiled \(native\); pair eager \(NaryTreeLSTMCell: .+\)"
    assert re.fullmatch(way, line)
    warning = r"^warning: NaryTreeLSTMCell is not compiled: .+ It runs eager, group by group"
    assert len(re.findall(warning, err, flags=re.MULTILINE)) == 1
    for words in (
        ["evaluate", folder],
        ["predict", folder, tmp_path / "trees.txt", "--output", tmp_path / "o.json"],
        ["predict", folder, tmp_path / "few.txt", "--output", tmp_path / "o.json"],
        ["verify", folder],
    ):
        text = "4\t( ( ( [MAX 2 ) 4 ) ] )\n3\t( ( ( [MAX 2 ) 3 ) ] )\n"
        (tmp_path / "trees.txt").write_text(text * (10_000 // len(text) + 1))
        (tmp_path / "few.txt").write_text(text)  # for few records cells are not compiled anyhow
        monkeypatch.setattr(choice, "_SAID", set())
        assert run(*words) == 0
        err = capsys.readouterr().err
        warnings = re.findall(warning, err, flags=re.MULTILINE)
        assert len(warnings) == (tmp_path / "few.txt" not in words), (words[0], err)


@COMPILED
@pytest.mark.usefixtures("stubborn")
def test_a_run_may_demand_compiled_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    words = listops("model.run=compiled", f"data.cache_dir={tmp_path}", f"hydra.run.dir={folder}")
    assert run("train", *words) == 2
    assert "NaryTreeLSTMCell is not compiled: " in capsys.readouterr().err


@COMPILED
def test_eager_cells_are_printed_without_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", *listops())
    out, err = capsys.readouterr()
    assert lines(out) == ["cells: token, pair eager (run=eager)"]
    assert "compiled" not in err


@COMPILED
def test_a_model_shows_it(tmp_path: Path) -> None:
    config = compose(listops("model.run=auto", f"data.cache_dir={tmp_path}")).config
    data = DataModule(**config.data)
    data.prepare()
    model = make_model(decide(config, data), data)
    assert describe_execution(model) == ""
    model(model.plan(data.encoded("val")))
    assert "pair: NaryTreeLSTMCell -> h [8], c [8], compiled (native)" in repr(model)
    ran = {f"type {number}": "compiled (native)" for number in range(9)}
    ran["odd"] = "eager (it is\n  odd)"
    with mock.patch.object(Network, "execution", ran):
        assert describe_execution(model) == "9 types compiled (native); odd eager (it is odd)"


def model_and_data(*overrides: str) -> tuple[GraphModel, DataModule]:
    config = compose([*listops(), *overrides]).config
    data = DataModule(**config.data)
    data.prepare()
    return make_model(decide(config, data), data), data


class Noisy(Cell):
    """Adds noise to what another cell computes."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell, self.fields, self.arity = cell, cell.fields, cell.arity

    def before(self, x):
        return self.cell.before(x)

    def forward(self, x, children):
        state = self.cell(x, children)
        return {name: value + 0.1 * torch.rand_like(value) for name, value in state.items()}


@pytest.fixture(scope="module")
def undropped(tmp_path_factory: pytest.TempPathFactory) -> GraphModel:
    """A model without dropout, to be copied."""
    folder = tmp_path_factory.mktemp("data")
    return model_and_data("model.dropout=0", f"data.cache_dir={folder}")[0]


def test_a_model_without_randomness_shares(tmp_path: Path) -> None:
    model, data = model_and_data("model.dropout=0", f"data.cache_dir={tmp_path}")
    assert choose_sharing(data, model, training=True)
    data.share = False
    assert not choose_sharing(data, model, training=True)
    data.share = True
    assert choose_sharing(data, model, training=True)


def test_dropout_decides_in_training_only(tmp_path: Path) -> None:
    model, data = model_and_data("model.dropout=0.5", f"data.cache_dir={tmp_path}")
    assert not choose_sharing(data, model, training=True)
    assert choose_sharing(data, model, training=False)
    model.encoder.dropout.p = 0.0
    for module in model.network.modules():
        if isinstance(module, StateDropout):
            module.p = 0.0
    model.head.another = torch.nn.Dropout(0.5)  # after the readout
    assert can_share(model, training=True)


def test_code_of_strangers_is_not_judged(undropped: GraphModel) -> None:
    model = copy.deepcopy(undropped)
    model.network.cells[0] = torch.nn.ModuleDict(
        {
            name: torch.nn.ModuleList([Noisy(cells[0])])
            for name, cells in model.network.cells[0].items()
        }
    )
    assert not can_share(model)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("part", "in_training", "in_evaluation"),
    [
        (torch.nn.LayerNorm(3), True, True),
        (torch.nn.BatchNorm1d(3), False, True),
        (torch.nn.BatchNorm1d(3, track_running_stats=False), False, False),
        (torch.nn.RReLU(), False, True),
        (torch.nn.MultiheadAttention(4, 2, dropout=0.1), False, True),
        (torch.nn.MultiheadAttention(4, 2), True, True),
        (FC(3, input_keep_prob=0.5), False, True),
        (FC(3, input_keep_prob=1.0), True, True),
        (FC(3, activation=lambda x: x - x.mean(0)), False, False),
        (FC(3, activation=torch.tanh), True, True),
        (FC(3, normalization_fn=torch.nn.functional.dropout), False, False),
    ],
)
def test_parts_decide(
    undropped: GraphModel,
    part: torch.nn.Module,
    in_training: bool,
    in_evaluation: bool,
    training: bool,
) -> None:
    model = copy.deepcopy(undropped)
    model.encoder.another = part
    assert can_share(model, training) == (in_training if training else in_evaluation)


def test_runs_with_and_without_sharing_come_to_the_same(tmp_path: Path) -> None:
    words = listops("trainer.max_epochs=2", "model.dropout=0", "trainer.precision=64-true")
    auto = train(tmp_path / "auto", *words)
    other = train(tmp_path / "other", *words, "data.share=false")
    for name, value in read_json(auto / "metrics.json").items():
        assert read_json(other / "metrics.json")[name] == pytest.approx(value, rel=1e-6)
