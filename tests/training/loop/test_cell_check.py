"""Cells whose state of a node depends on its group are named when training starts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from training.tiny_runs import listops

from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.loading.data_module import DataModule
from graphfold.training.config.compose import compose
from graphfold.training.loop.cell_check import warn_of_batch_dependence
from graphfold.training.run.initial_weights import make_model


def make(*overrides: str) -> tuple[Any, TypedDAG]:
    config = compose(listops(*overrides)).config
    data = DataModule(**config["data"])
    data.prepare()
    return make_model(config, data)[0], data.encoded("train")


def change_state(model: Any, name: str, change: Any) -> None:
    """Makes a cell apply a function to its field h."""
    (cell,) = model.network.cells[0][name]
    forward = cell.forward

    def changed(x: Any, children: Any) -> dict[str, Tensor]:
        state = dict(forward(x, children))
        state["h"] = change(state["h"])
        return state

    cell.forward = changed


@pytest.mark.parametrize("name", ["token", "pair"])
@pytest.mark.parametrize(
    "change", [lambda h: h + h.mean(0), lambda h: h + torch.rand_like(h)], ids=["mean", "random"]
)
def test_the_cell_is_named(name: str, change: Any) -> None:
    model, dag = make()
    change_state(model, name, change)
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match=rf"Cell \(type '{name}'\): what it computes for a node"):
        warn_of_batch_dependence(model, dag)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert model.network.ways == {}


@pytest.mark.parametrize("overrides", [[], ["model.dropout=0.5"], ["model=tree_rnn"]])
def test_ones_that_are_right_are_not(overrides: list[str]) -> None:
    model, dag = make(*overrides)
    change_state(model, "pair", lambda h: h / h.norm(dim=1, keepdim=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_batch_dependence(model, dag)


def test_graphs_of_one_node_say_nothing() -> None:
    model, _ = make()
    builder = GraphBuilder(Schema(types=(NodeType("word", arity=0),)))
    for _ in range(3):
        builder.output(builder.node("word"))
        builder.finish()
    warn_of_batch_dependence(model, builder.build())
