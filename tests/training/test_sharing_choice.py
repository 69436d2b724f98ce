"""Equal nodes are computed once unless the model is random or looks at the whole batch."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

from graphfold.batching import Cell
from graphfold.blocks import FC
from graphfold.datasets.loading.data_module import DataModule
from graphfold.layers import GraphModel
from graphfold.layers.dropout import StateDropout
from graphfold.training.config.compose import compose
from graphfold.training.loop.sharing import can_share, choose_sharing
from graphfold.training.run.initial_weights import make_model


def model_and_data(*overrides: str) -> tuple[GraphModel, DataModule]:
    config = compose([*listops(), *overrides]).config
    data = DataModule(**config["data"])
    data.prepare()
    return make_model(config, data)[0], data


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


@pytest.mark.parametrize("share", ["true", "false"])
def test_runs_come_to_the_same(share: str, tmp_path: Path) -> None:
    words = listops("trainer.max_epochs=2", "model.dropout=0", "trainer.precision=64-true")
    auto = train(tmp_path / "auto", *words)
    other = train(tmp_path / "other", *words, f"data.share={share}")
    for name, value in read_json(auto / "metrics.json").items():
        assert read_json(other / "metrics.json")[name] == pytest.approx(value, rel=1e-6)


def test_another_word_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("train", *listops("data.share=maybe"), f"hydra.run.dir={tmp_path}") == 2
    assert "data.share is 'maybe'. Use one of auto, true, false." in capsys.readouterr().err
