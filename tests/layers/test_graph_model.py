"""GraphModel: parts that learn their sizes from the schema, and faults reported together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from strategies import dags, with_empty_graph

from graphfold.batching import Batch, Down, Rounds, Up, build_schedule
from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers import (
    ChildSumTreeLSTMCell,
    ClassificationHead,
    FeatureEncoder,
    FingerprintCell,
    GCNCell,
    GINECell,
    GraphModel,
    LeafCell,
    LeafLSTMCell,
    MeanReadout,
    MultiLabelHead,
    NaryTreeLSTMCell,
    NodeReadout,
    PairReadout,
    RegressionHead,
    RelatednessHead,
    RootReadout,
    SumReadout,
    TreeGRUCell,
)

TREES = Schema(
    types=(
        NodeType("word", 0, (Column("form", "int64", size=7),)),
        NodeType("pair", 3, inputs=("word", "pair")),
    ),
    node_targets=(Column("label", "int64", size=5),),
    graph_targets=(Column("score", unit="points"),),
)
MOLECULES = Schema(
    types=(NodeType("atom", 0, (Column("symbol", "int64", size=9), Column("mass"))),),
    relations=(EdgeType("bond", (Column("order", "int64", size=4),)),),
    graph_features=(Column("smiles", "string"),),
    graph_targets=(Column("y"), Column("toxic", "int64", size=2)),
)
SENTENCES = Schema(
    types=(NodeType("word", None, (Column("form", "int64", size=7),)),),
    graph_targets=(Column("relatedness"),),
)


def tree_model(**changes: Any) -> GraphModel:
    arguments: dict[str, Any] = {
        "schema": TREES,
        "encoder": partial(FeatureEncoder, size=6),
        "passes": [Up()],
        "cells": [
            {
                "word": partial(LeafLSTMCell, hidden_size=4),
                "pair": partial(NaryTreeLSTMCell, hidden_size=4),
            }
        ],
        "readout": NodeReadout,
        "head": partial(ClassificationHead, target="label"),
    }
    return GraphModel(**{**arguments, **changes})


def molecule_model(**changes: Any) -> GraphModel:
    arguments: dict[str, Any] = {
        "schema": MOLECULES,
        "encoder": partial(FeatureEncoder, size=6),
        "passes": [Rounds("bond", 3)],
        "cells": [{"atom": partial(GINECell, hidden_size=6)}],
        "readout": MeanReadout,
        "head": partial(RegressionHead, targets=["y"]),
        "per_round_weights": True,
    }
    return GraphModel(**{**arguments, **changes})


def batch_of(dag: TypedDAG, model: GraphModel) -> Batch:
    return Batch(dag, build_schedule(dag, model.passes))


@given(dag=dags(TREES, outputs="last"))
def test_a_tree_model_predicts_every_node(dag):
    model = tree_model()
    raw = model(batch_of(dag, model))
    assert raw.shape == (dag.num_nodes, 5)
    losses = model.head.losses(raw, model.head.target_rows(dag))
    model.zero_grad()
    (losses.sum() + 0 * raw.sum()).backward()
    absent = {
        f"network.cells.0.{t.name}."
        for t, count in zip(TREES.types, dag.num_nodes_by_type, strict=True)
        if not count
    }
    for name, parameter in model.named_parameters():
        if name.startswith(tuple(absent)):
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all()


@given(dag=dags(MOLECULES, symmetric=True, outputs="all"))
def test_a_molecule_model_predicts_every_graph(dag):
    dag, model = with_empty_graph(dag), molecule_model(scalers={"y": (5.0, 2.0)})
    raw = model(batch_of(dag, model))
    assert raw.shape == (dag.num_graphs, 1)
    torch.testing.assert_close(model.head.decode(raw), 2 * raw + 5)


@given(dag=dags(TREES, outputs="last"))
def test_the_reference_engine_agrees(dag):
    model = tree_model().double()
    want = model(batch_of(dag, model))
    model.network.engine = "reference"
    torch.testing.assert_close(model(batch_of(dag, model)), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("part", "make", "match"),
    [
        ("readout", partial(RootReadout, over="nodes"), "takes no 'over'. .*It takes: input_size"),
        ("head", partial(RootReadout), "head is a RootReadout. Give a Head."),
        ("head", partial(ClassificationHead, hidden_size=0), "a layer of width 0 holds nothing"),
    ],
)
def test_a_part_that_cannot_be_one_is_named(part, make, match):
    with pytest.raises(ConfigError, match=match):
        tree_model(**{part: make})


def test_parts_learn_their_sizes():
    model = tree_model()
    word, pair = (cells[0] for cells in model.network.cells[0].values())
    assert word.from_x.in_features == 6
    assert pair.from_x is None
    assert pair.arity == 3
    assert model.head.layers[-1].in_features == 4
    assert model.passes == (Up(),)


def test_rounds_have_weights_of_their_own_if_asked():
    cells = molecule_model().network.cells[0]["atom"]
    assert len(cells) == 3
    assert cells[0] is not cells[1]
    assert cells[0].edge_encoder.codes[0].name == "order"
    assert len(molecule_model(per_round_weights=False).network.cells[0]["atom"]) == 1


def test_a_fingerprint_is_read_by_its_own_name():
    model = molecule_model(
        cells=[{"atom": partial(FingerprintCell, hidden_size=6, fingerprint_size=11)}],
        readout=partial(SumReadout, field="fingerprint"),
        head=partial(MultiLabelHead, targets=["toxic"], hidden_size=3),
    )
    assert model.head.layers[1].in_features == 11


def test_several_passes():
    model = tree_model(
        passes=[Up(), Down()],
        cells=[
            {"word": partial(LeafCell, hidden_size=4), "pair": partial(TreeGRUCell, hidden_size=4)},
            {
                "word": partial(TreeGRUCell, hidden_size=4),
                "pair": partial(TreeGRUCell, hidden_size=4),
            },
        ],
    )
    assert model.passes == (Up(), Down())


@given(dag=dags(SENTENCES, min_graphs=2, outputs="all", max_nodes=1))
def test_pairs(dag):
    model = GraphModel(
        SENTENCES,
        partial(FeatureEncoder, size=6),
        [Up()],
        [{"word": partial(ChildSumTreeLSTMCell, hidden_size=4)}],
        PairReadout,
        partial(RelatednessHead, target="relatedness"),
    )
    twice = replace(
        dag,
        output_index=dag.output_index.repeat_interleave(2),
        output_ptr=dag.output_ptr * 2,
    )
    assert model(batch_of(twice, model)).shape == (dag.num_graphs, 5)


def test_finished_parts_are_taken_as_they_are():
    cell = LeafLSTMCell(6, 4)
    cells = [{"word": cell, "pair": partial(NaryTreeLSTMCell, hidden_size=4)}]
    assert tree_model(cells=cells).network.cells[0]["word"][0] is cell


def test_every_fault_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        tree_model(
            encoder=partial(FeatureEncoder, size=6, features={"word": ["from"]}),
            cells=[{"wrod": partial(LeafCell, hidden_size=4)}],
            head=partial(ClassificationHead, target="lable"),
        )
    text = str(caught.value)
    assert text.startswith("the model has 5 faults:\n  - ")
    for part in (
        "cells names the type 'wrod', which the schema lacks. Did you mean 'word'?",
        "type 'word' has no cell in any pass",
        "type 'pair' has no cell in any pass",
        "column 'from', which type 'word' lacks. Did you mean 'form'?",
        "no target 'lable' for a node. Did you mean 'label'?",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"passes": [Rounds("bnd", 2)]}, "no relation 'bnd' for Rounds. Did you mean 'bond'"),
        ({"passes": [1]}, "passes has 1, which is no pass. Give Up, Down or Rounds"),
        ({"passes": []}, "there are 0 passes but cells for 1"),
        ({"cells": [{"atom": GCNCell}]}, "GCNCell needs 'hidden_size'. Set it in the config"),
        ({"cells": [{"atom": GCNCell(6)}]}, "per_round_weights needs a way to make cells"),
        ({"readout": partial(MeanReadout, field="hh")}, "reads field 'hh', which no cell computes"),
        ({"readout": PairReadout}, "RegressionHead reads single vectors, but PairReadout gives"),
        (
            {"readout": NodeReadout},
            "'y' is a target of whole graphs, but a row stands for one node",
        ),
        (
            {"head": partial(RegressionHead, targets=["y"]), "scalers": {}},
            "no scaler for the target y",
        ),
        ({"engine": "fats"}, "no engine 'fats'"),
        ({"cells": [{"atom": partial(GCNCell, hidden_size=-1)}]}, "GCNCell cannot be made: .*-1"),
        ({"cells": [{"atom": partial(LeafCell, hidden_size="6")}]}, "LeafCell cannot be made: "),
        ({"encoder": partial(FeatureEncoder, size=0)}, "encoder of size 0 encodes nothing"),
        (
            {"head": partial(RelatednessHead, target="y")},
            "RelatednessHead reads pairs.*PairReadout",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        molecule_model(**changes)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_field_without_width_is_refused():
    with pytest.raises(ConfigError, match="GCNCell of type 'atom' has the field 'h' with width 0"):
        molecule_model(cells=[{"atom": partial(GCNCell, hidden_size=0)}])


def test_a_cell_of_another_arity_is_refused():
    cells = [
        {
            "word": partial(LeafLSTMCell, hidden_size=4),
            "pair": partial(NaryTreeLSTMCell, hidden_size=4, arity=2),
        }
    ]
    with pytest.raises(ConfigError, match="needs 2 children, but type 'pair' has 3"):
        tree_model(cells=cells)


def test_a_missing_field_is_refused():
    cells = [
        {
            "word": partial(LeafCell, hidden_size=4),
            "pair": partial(NaryTreeLSTMCell, hidden_size=4),
        }
    ]
    with pytest.raises(ConfigError, match="reads field 'c', but its children of type 'word'"):
        tree_model(cells=cells)


def test_the_root_can_be_read_alone():
    model = tree_model(readout=RootReadout, head=RegressionHead)
    assert model.head.targets == ("score",)
    assert model.head.columns[0].unit == "points"


@pytest.mark.parametrize("part", ["encoder", "readout", "head"])
def test_a_part_that_cannot_be_called_is_named(part: str) -> None:
    with pytest.raises(ConfigError, match=r"a part of the model is \{'a': 1\}, but it must be"):
        tree_model(**{part: {"a": 1}})
