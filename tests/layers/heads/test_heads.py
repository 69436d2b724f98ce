"""Heads: losses against torch and scikit-learn, missing targets, and their common protocol."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from strategies import dags
from torch.nn import functional

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError, DataError
from graphfold.layers import (
    ClassificationHead,
    Head,
    MultiLabelHead,
    PairClassificationHead,
    RegressionHead,
    RelatednessHead,
)

NAN = float("nan")
SIZE = 4
SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("phrase", None)),
    node_targets=(Column("tag", "int64", size=3), Column("weight"), Column("known", "bool")),
    graph_targets=(
        Column("answer", "int64", size=5),
        Column("solubility", unit="log mol/L"),
        Column("energy", "float64", unit="kcal/mol"),
        Column("toxic", "int64", size=2),
        Column("active", "int32", size=2),
    ),
)
PAIRS = Schema(
    types=SCHEMA.types,
    graph_targets=(Column("relatedness"), Column("entailment", "int64", size=3)),
)
TASKS = ("toxic", "active")

HEADS = [
    lambda level: ClassificationHead(SIZE, SCHEMA, level, "answer" if level == "graph" else "tag"),
    lambda level: RegressionHead(SIZE, SCHEMA, level, FLOATS[level]),
    lambda level: MultiLabelHead(SIZE, SCHEMA, level, TASKS if level == "graph" else ["known"]),
]
FLOATS = {"graph": ["energy", "solubility"], "node": ["weight"], "output": ["weight"]}
LEVELS = ["graph", "node", "output"]


def num_rows(dag: TypedDAG, level: str) -> int:
    return {"graph": dag.num_graphs, "node": dag.num_nodes, "output": len(dag.output_index)}[level]


@pytest.mark.parametrize("make", HEADS)
@pytest.mark.parametrize("level", LEVELS)
@given(dag=dags(SCHEMA, outputs="some"))
def test_every_head_keeps_the_protocol(make, level, dag):
    head: Head = make(level)
    count = num_rows(dag, level)
    raw = head(torch.randn(count, SIZE))
    targets = head.target_rows(dag)
    known = head.measured(targets)
    losses = head.losses(raw, targets)
    assert raw.shape[0] == targets.shape[0] == count
    assert losses.shape == (count,)
    assert known.shape == targets.shape
    assert not losses[~known.view(count, -1).any(1)].any()
    assert head.decode(raw).shape[0] == count
    assert [column.name for column in head.columns] == list(head.targets)
    want = {"graph": list(range(dag.num_graphs)), "node": dag.batch.tolist()}
    want["output"] = dag.batch[dag.output_index].tolist()
    assert head.row_graph(dag).tolist() == want[level]


@pytest.mark.parametrize("make", HEADS)
def test_an_unmeasured_row_gets_no_gradient(make):
    head: Head = make("graph")
    missing = torch.tensor([-1, 1]) if isinstance(head, ClassificationHead) else None
    targets = torch.tensor([[NAN, NAN], [1.0, NAN]]) if missing is None else missing
    rows = torch.randn(2, SIZE, requires_grad=True)
    head.losses(head(rows), targets).sum().backward()
    assert not rows.grad[0].any()
    assert rows.grad[1].any()
    assert rows.grad.isfinite().all()


def test_targets_are_aligned_and_missing_ones_marked():
    head = RegressionHead(SIZE, SCHEMA, "graph", ["energy", "solubility"])
    schema_dag = graph_with(answer=2, solubility=None, energy=-1.5, toxic=None, active=1)
    rows = head.target_rows(schema_dag)
    assert rows[0, 0] == -1.5
    assert rows[0, 1].isnan()
    assert head.measured(rows).tolist() == [[True, False]]
    tasks = MultiLabelHead(SIZE, SCHEMA, "graph", TASKS).target_rows(schema_dag)
    assert tasks[0, 0].isnan()
    assert tasks[0, 1] == 1
    assert ClassificationHead(SIZE, SCHEMA, "graph", "answer").target_rows(schema_dag).item() == 2


def graph_with(**targets: float | None) -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("word"))
    builder.finish(**targets)
    return builder.build()


def test_regression_learns_standardised_values_and_predicts_in_units():
    scalers = {"energy": (-100.0, 20.0), "solubility": (-3.0, 2.0), "other": (0.0, 9.0)}
    head = RegressionHead(SIZE, SCHEMA, "graph", ["energy", "solubility"], scalers)
    raw = torch.tensor([[0.5, -1.0], [0.0, 0.0]])
    predicted = head.decode(raw)
    torch.testing.assert_close(predicted, torch.tensor([[-90.0, -5.0], [-100.0, -3.0]]))
    targets = torch.tensor([[-90.0, -5.0], [-60.0, NAN]])
    torch.testing.assert_close(head.losses(raw, targets), torch.tensor([0.0, 4.0 / 2]))
    assert {"mean", "std"} <= head.state_dict().keys()
    assert [column.unit for column in head.columns] == ["kcal/mol", "log mol/L"]


def test_a_target_that_never_varies_keeps_its_scale():
    head = RegressionHead(SIZE, SCHEMA, "graph", ["energy"], {"energy": (7.0, 0.0)})
    assert head.decode(torch.tensor([[1.0]])).item() == 8.0


def relatedness(raw: np.ndarray, y: float) -> float:
    """Equation by equation: Tai et al. (2015), section 4.2."""
    p = np.zeros(5)
    floor = math.floor(y)
    p[floor - 1] = floor - y + 1
    if floor < 5:
        p[floor] = y - floor
    p_hat = np.exp(raw) / np.exp(raw).sum()
    return sum(pi * math.log(pi / qi) for pi, qi in zip(p, p_hat, strict=True) if pi > 0)


@pytest.mark.parametrize("y", [1.0, 1.25, 3.0, 4.9, 5.0])
def test_relatedness_is_the_divergence_of_the_paper(y):
    head = RelatednessHead(SIZE, PAIRS).double()
    raw = head(torch.randn(1, 2, SIZE, dtype=torch.float64)).detach()
    want = relatedness(raw[0].numpy(), y)
    got = head.losses(raw, torch.tensor([[y]], dtype=torch.float64))
    torch.testing.assert_close(got, torch.tensor([want], dtype=torch.float64))
    probabilities = torch.softmax(raw[0], 0)
    value = sum((i + 1) * float(p) for i, p in enumerate(probabilities))
    assert head.decode(raw).tolist() == [[pytest.approx(value)]]


def test_similarity_is_that_of_the_paper():
    head = RelatednessHead(SIZE, PAIRS, hidden_size=7)
    left, right = torch.randn(3, SIZE), torch.randn(3, SIZE)
    w_x, w_plus = head.similarity.linear.weight.split(SIZE, dim=1)
    hidden = (left * right) @ w_x.T + (left - right).abs() @ w_plus.T + head.similarity.linear.bias
    want = head.layers(torch.sigmoid(hidden))
    torch.testing.assert_close(head(torch.stack([left, right], 1)), want)


def test_an_unmeasured_score_costs_nothing_and_a_wrong_one_is_refused():
    head = RelatednessHead(SIZE, PAIRS)
    raw = torch.randn(1, 5, requires_grad=True)
    head.losses(raw, torch.tensor([[NAN]])).sum().backward()
    assert not raw.grad.any()
    with pytest.raises(DataError, match=r"'relatedness' has the score 5.5, outside 1 .. 5"):
        head.losses(raw, torch.tensor([[5.5]]))


def test_pair_classification_is_a_softmax_over_the_similarity():
    head = PairClassificationHead(SIZE, PAIRS, target="entailment", hidden_size=6)
    pair = torch.randn(5, 2, SIZE)
    raw = head(pair)
    torch.testing.assert_close(raw, head.layers(head.similarity(pair)))
    targets = torch.tensor([0, 1, 2, -1, 1])
    want = functional.cross_entropy(raw[targets >= 0], targets[targets >= 0], reduction="none")
    torch.testing.assert_close(head.losses(raw, targets)[targets >= 0], want)
    assert head.pairs


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ClassificationHead(SIZE, SCHEMA, "graph", "anwser"), "mean 'answer'"),
        (lambda: ClassificationHead(SIZE, SCHEMA, "graph", "tag"), "target of nodes.*NodeReadout"),
        (lambda: ClassificationHead(SIZE, SCHEMA, "node", "answer"), "target of whole graphs"),
        (lambda: ClassificationHead(SIZE, SCHEMA, "graph", "energy"), "not a class. Use Regr"),
        (lambda: ClassificationHead(SIZE, PAIRS, "node"), "no target for one row per node"),
        (lambda: PairClassificationHead(SIZE, CLASSES), "predicts one target, but there are 2"),
        (
            lambda: RegressionHead(SIZE, SCHEMA, "graph"),
            "'answer', which is not one float",
        ),
        (lambda: RegressionHead(SIZE, PAIRS, "graph", ["relatedness"], {}), "no scaler for the"),
        (
            lambda: MultiLabelHead(SIZE, SCHEMA, "graph", ["answer"]),
            "'answer', which is not binary",
        ),
        (lambda: RelatednessHead(SIZE, PAIRS, target="entailment"), "not a score. Use PairClass"),
        (lambda: RelatednessHead(SIZE, PAIRS, low=5, high=5), "scale from 5 to 5 is empty"),
        (lambda: ClassificationHead(SIZE, CLASSES, "node", "open"), "number of classes is unknown"),
    ],
)
def test_targets_that_do_not_fit_are_refused(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


CLASSES = Schema(
    types=SCHEMA.types,
    node_targets=(Column("open", "int64"),),
    graph_targets=(Column("a", "int64", size=2), Column("b", "int64", size=3)),
)
