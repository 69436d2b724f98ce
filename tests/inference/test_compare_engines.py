"""Comparison of engines: how far two results are apart, and what depends on the batch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from training.one_step import new_loop, take_step
from training.tiny_runs import write_molecules

from graphfold.batching import Cell, Children, Rounds
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.inference.compare_engines import TOLERANCE, Comparison, compare, distance
from graphfold.layers import FeatureEncoder, GraphModel, MeanReadout, RegressionHead
from graphfold.training.loop.loop import Loop

ONES, NONE = torch.ones(2), torch.zeros(0, 3)


def test_differences_are_relative_to_large_values_only():
    assert distance([ONES / 4], [ONES / 2]) == 0.25
    assert distance([ONES * 6], [ONES * 8]) == 0.25
    assert distance([ONES, ONES / 2, ONES], [ONES] * 3) == 0.5
    assert distance([], []) == 0
    assert distance([NONE], [NONE]) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_counts_wherever_it_stands(place):
    got = [ONES.clone() for _ in range(3)]
    got[place][1] = math.nan
    assert math.isnan(distance(got, [ONES] * 3))


def test_json_has_null_for_what_it_cannot_hold():
    comparison = Comparison("depth", False, math.nan, 0.5, "it differs", "node compiled")
    assert comparison.to_dict() == {
        "policy": "depth",
        "share": False,
        "outputs": None,
        "gradients": 0.5,
        "differs": "it differs",
        "cells": "node compiled",
        "equal": False,
    }


SCHEMA = Schema(
    types=(NodeType("atom", 0, (Column("mass"),)),),
    relations=(EdgeType("bond", (Column("order"),)),),
    graph_targets=(Column("y"),),
)


def rings(*sizes: int) -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    for size in sizes:
        nodes = builder.nodes("atom", size, mass=[0.5 * size + n for n in range(size)])
        orders = [float(n + size) for n in range(size)]
        builder.edges("bond", nodes, [*nodes[1:], nodes[0]], order=orders)
        builder.output(nodes[0])
        builder.finish(y=float(size))
    return builder.build()


class PartCell(Cell):
    """Changes the result of one of its methods."""

    def __init__(self, input_size: int, place: str, change: Any) -> None:
        super().__init__()
        self.fields = {"h": 3}
        self.linear = nn.Linear(input_size, 3)
        self.place, self.change = place, change

    def _changed(self, place: str, value: Tensor) -> Tensor:
        changed: Tensor = self.change(value) if place == self.place else value
        return changed

    def before(self, x: Tensor) -> Tensor:
        return self._changed("before", self.linear(x))

    def before_edges(self, edge: Any) -> dict[str, Tensor]:
        order = edge["order"].unsqueeze(1).to(self.linear.weight.dtype)
        return {"weight": self._changed("before_edges", order)}

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": self._changed("initial", x)}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        message = children.rows("h") * children.edge["weight"]
        return {"h": torch.tanh(x + children.sum(message))}

    def after(self, state: Any) -> dict[str, Tensor]:
        return {"p": self._changed("after", state["h"])}


class PartEncoder(FeatureEncoder):
    change: Any = staticmethod(lambda x: x)

    def forward(self, dag: TypedDAG, sources: Any = None) -> dict[str, Tensor]:
        return {name: self.change(x) for name, x in super().forward(dag, sources).items()}


class PartReadout(MeanReadout):
    change: Any = staticmethod(lambda x: x)

    def forward(self, states: Any, dag: TypedDAG) -> Tensor:
        changed: Tensor = self.change(super().forward(states, dag))
        return changed


class PartHead(RegressionHead):
    change: Any = staticmethod(lambda x: x)

    def forward(self, rows: Tensor) -> Tensor:
        changed: Tensor = self.change(super().forward(rows))
        return changed


def model_of(place: str, change: Any) -> GraphModel:
    model = GraphModel(
        schema=SCHEMA,
        encoder=partial(PartEncoder, size=4),
        passes=[Rounds("bond", 2)],
        cells=[{"atom": partial(PartCell, place=place, change=change)}],
        readout=PartReadout,
        head=partial(PartHead, targets=["y"]),
        run="eager",
    )
    for name in {"encoder", "readout", "head"} & {place}:
        getattr(model, name).change = change
    return model


PLACES = ["before", "before_edges", "initial", "after", "encoder", "readout", "head"]


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", [centred, lambda x: x / x.detach().norm()])
def test_what_depends_on_the_batch_differs(place, change):
    (found,) = compare(model_of(place, change), rings(3, 5, 4), ["depth"])
    assert found.differs
    assert found.outputs > TOLERANCE


@pytest.mark.parametrize("place", PLACES)
def test_what_treats_each_row_alone_is_equal(place):
    change = partial(torch.nn.functional.normalize, dim=1)
    (found,) = compare(model_of(place, change), rings(3, 5, 4), ["depth"])
    assert not found.differs, found.differs
    assert found.outputs <= TOLERANCE


@pytest.mark.parametrize("place", ["before", "encoder", "readout", "head"])
def test_dropout_is_no_dependence_on_the_batch(place):
    (found,) = compare(model_of(place, nn.Dropout(0.5)), rings(3, 5, 4), ["depth"])
    assert not found.differs, found.differs


class OwnHead(RegressionHead):
    """Calls a loss of torch on unconverted targets, as heads of users may."""

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        return functional.huber_loss(raw, targets, reduction="none").mean(1)


def test_targets_are_as_exact_as_the_model(tmp_path):
    write_molecules(tmp_path / "m.csv", 8)
    words = (
        "data=smiles", "model=gcn", "model.hidden_size=4", "data.target_columns=[a b]",
        "model.run=eager", f"data.path={tmp_path}/m.csv", f"data.cache_dir={tmp_path}",
    )  # fmt: skip

    def with_own_head(loop: Loop) -> None:
        loop.model.head = OwnHead(4, data.spec.schema)

    loop, data = new_loop(*words)
    with_own_head(loop)
    assert {found.differs for found in compare(loop.model, data.encoded(), ["depth"])} == {""}
    assert take_step(*words, patch=with_own_head)[1] > 0  # in float64, too
