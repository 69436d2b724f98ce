"""Scores of a split: by rows, by the root, over any batches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import ClassificationHead, Head, MultiLabelHead, RegressionHead
from graphfold.training.scoring.scoring import Rows, gather, join, metric_names, split_metrics

WORD = (NodeType("word", 0, (Column("form", "string"),)),)
SENTIMENT = Schema(WORD, node_targets=(Column("label", "int64", size=5),))
VALUES = Schema(WORD, graph_targets=(Column("a"), Column("b")))
ASSAYS = Schema(WORD, graph_targets=tuple(Column(n, "int64", size=2) for n in "ab"))


def rows(prediction: Tensor, target: Tensor, graph: list[int], root: list[bool]) -> Rows:
    loss = torch.arange(len(graph), dtype=torch.float32)
    graphs = max(graph, default=-1) + 1
    return Rows(prediction, target, loss, torch.tensor(graph), torch.tensor(root), graphs)


def sentiment(classes: list[int], target: list[int], graph: list[int], root: list[bool]) -> Rows:
    return rows(torch.eye(5)[classes], torch.tensor(target), graph, root)


def head(level: str = "node") -> Head:
    return ClassificationHead(3, SENTIMENT, level)


def test_nodes_and_roots_are_scored_apart() -> None:
    part = sentiment([0, 1, 4, 2], [0, 2, 4, 1], [0, 0, 1, 1], [False, True, False, True])
    metrics = split_metrics(head(), part)
    assert metrics["node_accuracy"] == 0.5
    assert metrics["root_accuracy"] == 0.0


def test_an_unlabelled_node_is_not_scored() -> None:
    part = sentiment([0, 1, 3], [0, -1, -1], [0, 0, 1], [False, True, True])
    metrics = split_metrics(head(), part)
    assert metrics["node_accuracy"] == 1.0
    assert metrics["root_accuracy"] is None


def test_words_without_a_root_have_no_root_metrics() -> None:
    """A sentence of one word has one output, but a corpus of sentences has no roots."""
    part = sentiment([0, 1, 3], [0, 1, 3], [0, 0, 1], [False, False, True])
    assert "root_accuracy" not in split_metrics(head("output"), part)


def test_binary_accuracy_leaves_neutral_roots_out() -> None:
    probability = torch.tensor(
        [
            [0.3, 0.0, 0.4, 0.2, 0.1],  # p3 + p4 = p0 + p1: not positive, right for 0
            [0.1, 0.1, 0.5, 0.2, 0.1],  # positive, right for 4
            [0.0, 0.0, 1.0, 0.0, 0.0],  # a neutral root: not counted
            [0.2, 0.3, 0.1, 0.4, 0.0],  # not positive, wrong for 3, whatever its best class
        ]
    )
    part = rows(probability, torch.tensor([0, 4, 2, 3]), [0, 1, 2, 3], [True] * 4)
    assert split_metrics(head(), part)["root_binary_accuracy"] == pytest.approx(2 / 3)


def test_missing_targets_of_one_task_do_not_hide_the_other() -> None:
    nan = float("nan")
    target = torch.tensor([[1.0, nan], [3.0, 5.0], [nan, 7.0]])
    part = rows(torch.zeros(3, 2), target, [0, 1, 2], [True] * 3)
    metrics = split_metrics(RegressionHead(3, VALUES), part)
    assert metrics["mae/a"] == 2.0
    assert metrics["mae/b"] == 6.0
    assert metrics["mae"] == 4.0


def test_loss_is_reduced_as_in_training() -> None:
    part = sentiment([0, 1, 4, 2], [0, 2, -1, 1], [0, 0, 1, 1], [False, True, False, True])
    assert split_metrics(head(), part, "per_graph")["loss"] == (0 + 1 + 2 + 3) / 2
    assert split_metrics(head(), part, "per_node")["loss"] == pytest.approx((0 + 1 + 3) / 3)


def test_batches_join_in_the_order_of_their_numbers() -> None:
    first = sentiment([0, 1], [0, 1], [0, 1], [True, True])
    second = sentiment([2, 3, 4], [2, 3, 4], [0, 0, 1], [False, True, True])
    whole = gather([(1, second), (0, first)])
    assert whole.graph.tolist() == [0, 1, 2, 2, 3]
    assert whole.target.tolist() == [0, 1, 2, 3, 4]
    assert whole.num_graphs == 4


def test_some_graphs_alone() -> None:
    part = sentiment([0, 1, 2], [0, 1, 2], [0, 1, 1], [True, False, True])
    chosen = part.at(torch.tensor([False, True]))
    assert chosen.graph.tolist() == [0, 0]
    assert chosen.target.tolist() == [1, 2]
    assert chosen.num_graphs == 1


def test_nothing_has_no_metrics() -> None:
    assert set(split_metrics(head("node"), join([])).values()) == {None}


@pytest.mark.parametrize(
    ("made", "has_roots", "first"),
    [
        (head("node"), True, "root_accuracy"),
        (head("output"), False, "node_accuracy"),
        (RegressionHead(3, VALUES), True, "rmse"),
        (MultiLabelHead(3, ASSAYS), True, "roc_auc"),
    ],
)
def test_names_of_metrics_before_there_are_any(made: Head, has_roots: bool, first: str) -> None:
    names = metric_names(made, has_roots)
    assert names[0] == first
    assert len(names) == len(set(names))
    assert names[-1] == "loss"
