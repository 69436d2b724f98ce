"""GraphModel: parts that learn their sizes from the schema, and faults reported together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from strategies import dags

from graphfold.batching import Batch, Rounds, Up, build_schedule
from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers import (
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


TREE_CELLS = {
    "word": partial(LeafLSTMCell, hidden_size=4),
    "pair": partial(NaryTreeLSTMCell, hidden_size=4),
}


def tree_model(**changes: Any) -> GraphModel:
    arguments: dict[str, Any] = {
        "schema": TREES,
        "encoder": partial(FeatureEncoder, size=6),
        "passes": [Up()],
        "cells": [TREE_CELLS],
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


def test_parts_learn_their_sizes():
    model = tree_model()
    word, pair = (cells[0] for cells in model.network.cells[0].values())
    assert word.from_x.in_features == 6
    assert pair.from_x is None
    assert pair.arity == 3
    assert model.head.layers[-1].in_features == 4
    assert model.passes == (Up(),)


def test_weights_per_round_are_an_option():
    cells = molecule_model().network.cells[0]["atom"]
    assert len(cells) == 3
    assert cells[0] is not cells[1]
    assert cells[0].edge_encoder.codes[0].name == "order"
    assert len(molecule_model(per_round_weights=False).network.cells[0]["atom"]) == 1


def test_cells_learn_the_columns_of_each_relation():
    seen: dict[str, tuple[Column, ...]] = {}

    def make_cell(relation_columns: dict[str, tuple[Column, ...]]) -> GCNCell:
        seen.update(relation_columns)
        return GCNCell(6)

    changes = {
        "schema": replace(MOLECULES, relations=(*MOLECULES.relations, EdgeType("ring"))),
        "passes": [Rounds(["bond", "ring"], 2)],
        "per_round_weights": False,
    }
    molecule_model(cells=[{"atom": make_cell}], **changes)
    assert seen == {"bond": MOLECULES.relation("bond").features, "ring": ()}
    with pytest.raises(ConfigError, match="GINECell needs 'edge_columns'"):
        molecule_model(**changes)


def test_a_readout_may_read_the_fingerprint():
    model = molecule_model(
        cells=[{"atom": partial(FingerprintCell, hidden_size=6, fingerprint_size=11)}],
        readout=partial(SumReadout, field="fingerprint"),
        head=partial(MultiLabelHead, targets=["toxic"], hidden_size=3),
    )
    assert model.head.layers[1].in_features == 11


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
        (
            {"readout": partial(RootReadout, over="nodes")},
            "takes no 'over'. .*It takes: input_size",
        ),
        ({"head": partial(RootReadout)}, "head is a RootReadout. Give a Head."),
        ({"head": partial(ClassificationHead, hidden_size=0)}, "a layer of width 0 holds nothing"),
        ({"encoder": {"a": 1}}, r"a part of the model is \{'a': 1\}, but it must be"),
        (
            {"cells": [TREE_CELLS | {"pair": partial(NaryTreeLSTMCell, hidden_size=4, arity=2)}]},
            "needs 2 children, but type 'pair' has 3",
        ),
        (
            {"cells": [TREE_CELLS | {"word": partial(LeafCell, hidden_size=4)}]},
            "reads field 'c', but its children of type 'word'",
        ),
    ],
)
def test_parts_of_a_tree_model_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        tree_model(**changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"passes": [Rounds("bnd", 2)]}, "no relation 'bnd' for Rounds. Did you mean 'bond'"),
        (
            {"passes": [Rounds(["bond", "bnd"], 2)]},
            "no relation 'bnd' for Rounds. Did you mean 'bond'",
        ),
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
        ({"run": "atuo"}, "no run 'atuo'"),
        ({"cells": [{"atom": partial(GCNCell, hidden_size=-1)}]}, "GCNCell cannot be made: .*-1"),
        ({"cells": [{"atom": partial(LeafCell, hidden_size="6")}]}, "LeafCell cannot be made: "),
        ({"cells": [{"atom": partial(GCNCell, hidden_size=0)}]}, "the field 'h' with width 0"),
        ({"encoder": partial(FeatureEncoder, size=0)}, "encoder of size 0 encodes nothing"),
        (
            {"head": partial(RelatednessHead, target="y")},
            "RelatednessHead reads pairs.*PairReadout",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_parts_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        molecule_model(**changes)
