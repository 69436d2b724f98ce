"""Inputs of whole graphs, joined to the rows of a readout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from layers.test_graph_model import MOLECULES, TREES, batch_of, molecule_model, tree_model
from strategies import dags

from graphfold.dag import Column
from graphfold.errors import ConfigError
from graphfold.layers import PairReadout, RelatednessHead
from graphfold.layers.encoders.feature_encoder import GraphInputs

INPUTS = (Column("heat"), Column("counts", "uint8", (3,)))
WITH_INPUTS = replace(MOLECULES, graph_features=(*MOLECULES.graph_features, *INPUTS))


@given(dag=dags(WITH_INPUTS, symmetric=True, outputs="all"))
def test_the_head_reads_the_readout_and_then_the_inputs(dag: Any) -> None:
    dag = dag.map_tensors(lambda t: t.nan_to_num(0.5) if t.is_floating_point() else t)
    model = molecule_model(schema=WITH_INPUTS)
    batch = batch_of(dag, model)
    states = model.states(batch)
    columns = dag.columns["graph"]
    want = [model.readout(states, dag), columns["heat"].view(-1, 1), columns["counts"].float()]
    torch.testing.assert_close(model.rows(states, batch), torch.cat(want, dim=1))
    raw = model(batch)
    model.network.run = "reference"
    torch.testing.assert_close(model(batch), raw, rtol=1e-4, atol=1e-4)


def test_every_node_gets_the_inputs_of_its_graph() -> None:
    schema = replace(TREES, graph_features=INPUTS)
    model = tree_model(schema=schema)
    assert model.head.layers[-1].in_features == 4 + 4
    rows = torch.zeros(3, 2)

    class Two:
        columns = {"graph": {"heat": torch.tensor([1.0, 2.0]), "counts": torch.ones(2, 3)}}
        num_graphs = 2

    joined = GraphInputs(schema)(rows, lambda _: torch.tensor([0, 1, 1]), Two())  # type: ignore[arg-type]
    assert joined[:, 2].tolist() == [1.0, 2.0, 2.0]


def test_without_inputs_rows_stay_as_they_are() -> None:
    inputs, rows = GraphInputs(MOLECULES), torch.zeros(3, 2)
    assert inputs.size == 0
    assert inputs(rows, lambda _: torch.arange(3), None) is rows


def test_pairs_cannot_have_them() -> None:
    message = r"PairReadout gives pairs, which cannot be joined to GraphInputs\(heat float32, count"
    with pytest.raises(ConfigError, match=message):
        molecule_model(schema=WITH_INPUTS, readout=PairReadout, head=RelatednessHead)
