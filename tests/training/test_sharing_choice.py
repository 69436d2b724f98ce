"""Equal nodes are computed once unless the model is random or looks at the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

from graphfold.batching import Cell
from graphfold.dag import select
from graphfold.datasets.data_module import DataModule
from graphfold.layers import GraphModel
from graphfold.training.compose import compose
from graphfold.training.sharing import can_share, choose_sharing
from graphfold.training.train import make_learner


def model_and_data(*overrides: str) -> tuple[GraphModel, DataModule]:
    config = compose([*listops(), *overrides]).config
    data = DataModule(**config["data"])
    data.prepare()
    return make_learner(config, data)[0].model, data


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


def test_a_model_without_randomness_shares(tmp_path: Path) -> None:
    model, data = model_and_data("model.dropout=0", f"data.cache_dir={tmp_path}")
    assert choose_sharing(data, "train", model, training=True)
    data.share = False
    assert not choose_sharing(data, "train", model, training=True)
    model.network.cells[0] = torch.nn.ModuleDict(
        {
            name: torch.nn.ModuleList([Noisy(cells[0])])
            for name, cells in model.network.cells[0].items()
        }
    )
    model.network.fuse = False  # it is not compiled, and need not say so
    assert not can_share(model, data.encoded("val"))


def test_dropout_decides_in_training_only(tmp_path: Path) -> None:
    model, data = model_and_data("model.dropout=0.5", f"data.cache_dir={tmp_path}")
    assert not choose_sharing(data, "train", model, training=True)
    assert choose_sharing(data, "val", model, training=False)
    assert not can_share(model, select(data.encoded(), []))


def test_a_trial_leaves_no_trace(tmp_path: Path) -> None:
    model, data = model_and_data("model.dropout=0.5", f"data.cache_dir={tmp_path}")
    model.encoder.eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    generator = torch.get_rng_state()
    can_share(model, data.encoded("val"), training=True)
    assert torch.equal(torch.get_rng_state(), generator)
    assert [module.training for module in model.modules()] == modes
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


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
