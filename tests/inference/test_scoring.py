"""Scores of a split: by rows, by the root, over any batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor

from graphfold.dag import Column, NodeType, Schema
from graphfold.errors import ConfigError
from graphfold.layers import ClassificationHead, Head, MultiLabelHead, RegressionHead
from graphfold.layers.heads.eval_rows import EvalRows, Predicted
from graphfold.training.scoring import (
    HeadMetrics,
    Metrics,
    class_metrics,
    confusion_counts,
    gather,
)

WORD = (NodeType("word", 0, (Column("form", "string"),)),)
SENTIMENT = Schema(WORD, node_targets=(Column("label", "int64", size=5, ordered=True),))
SYNTAX = Schema(WORD, node_targets=(Column("label", "int64", size=5),))
VALUES = Schema(WORD, graph_targets=(Column("a"), Column("b")))
ASSAYS = Schema(WORD, graph_targets=tuple(Column(n, "int64", size=2) for n in "ab"))


def rows(prediction: Tensor, target: Tensor, graph: list[int], root: list[bool]) -> EvalRows:
    loss = torch.arange(len(graph), dtype=torch.float32)
    graphs = max(graph, default=-1) + 1
    return EvalRows(
        Predicted(prediction), target, loss, torch.tensor(graph), torch.tensor(root), graphs
    )


def sentiment(
    classes: list[int], target: list[int], graph: list[int], root: list[bool]
) -> EvalRows:
    return rows(torch.eye(5)[classes], torch.tensor(target), graph, root)


def head(level: str = "node") -> Head:
    return ClassificationHead(3, SENTIMENT, level)


def split_metrics(head: Head, part: EvalRows, reduction: str = "per_graph") -> Metrics:
    return HeadMetrics.of(head, None, reduction)(part)


def test_nodes_and_roots_are_scored_apart():
    part = sentiment([0, 1, 4, 2], [0, 2, 4, 1], [0, 0, 1, 1], [False, True, False, True])
    metrics = split_metrics(head(), part)
    assert metrics["node_accuracy"] == 0.5
    assert metrics["root_accuracy"] == 0.0


def test_an_unlabelled_node_is_not_scored():
    part = sentiment([0, 1, 3], [0, -1, -1], [0, 0, 1], [False, True, True])
    metrics = split_metrics(head(), part)
    assert metrics["node_accuracy"] == 1.0
    assert metrics["root_accuracy"] is None


def test_words_without_a_root_have_no_root_metrics():
    """A sentence of one word has one output, but a corpus of sentences has no roots."""
    part = sentiment([0, 1, 3], [0, 1, 3], [0, 0, 1], [False, False, True])
    assert "root_accuracy" not in split_metrics(head("output"), part)


def test_binary_accuracy_leaves_neutral_roots_out():
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


def test_missing_targets_of_one_task_do_not_hide_the_other():
    nan = float("nan")
    target = torch.tensor([[1.0, nan], [3.0, 5.0], [nan, 7.0]])
    part = rows(torch.zeros(3, 2), target, [0, 1, 2], [True] * 3)
    metrics = split_metrics(RegressionHead(3, VALUES), part)
    assert metrics["mae/a"] == 2.0
    assert metrics["mae/b"] == 6.0
    assert metrics["mae"] == 4.0


def test_loss_is_reduced_as_in_training():
    part = sentiment([0, 1, 4, 2], [0, 2, -1, 1], [0, 0, 1, 1], [False, True, False, True])
    part.loss[2] = 0.0  # as heads have it where nothing is measured
    assert split_metrics(head(), part, "per_graph")["loss"] == (0 + 1 + 3) / 2
    assert split_metrics(head(), part, "per_node")["loss"] == pytest.approx((0 + 1 + 3) / 3)


def test_batches_join_in_the_order_of_their_numbers():
    first = sentiment([0, 1], [0, 1], [0, 1], [True, True])
    second = sentiment([2, 3, 4], [2, 3, 4], [0, 0, 1], [False, True, True])
    whole = gather([(1, second), (0, first)])
    assert whole.graph.tolist() == [0, 1, 2, 2, 3]
    assert whole.target.tolist() == [0, 1, 2, 3, 4]
    assert whole.num_graphs == 4


@pytest.mark.parametrize(
    ("made", "has_roots", "first"),
    [
        (head("node"), True, "root_accuracy"),
        (head("output"), False, "node_accuracy"),
        (ClassificationHead(3, SYNTAX, "node"), True, "node_accuracy"),
        (RegressionHead(3, VALUES, targets=["a"]), True, "rmse"),
        (MultiLabelHead(3, ASSAYS), True, "roc_auc"),
    ],
)
def test_names_of_metrics_before_there_are_any(made, has_roots, first):
    names = HeadMetrics.of(made).names(has_roots)
    assert names[0] == first
    assert len(names) == len(set(names))
    assert "loss" in names


def test_the_names_are_those_of_the_values():
    part = rows(torch.zeros(2, 2), torch.zeros(2, 2), [0, 1], [True] * 2)
    metrics = HeadMetrics.of(MultiLabelHead(3, ASSAYS))
    assert set(metrics.names(has_roots=True)) == set(metrics(part))


def test_several_targets_are_judged_without_their_units():
    """An error of one unit is nothing beside one of another; the loss knows each target's scale."""
    assert HeadMetrics.of(RegressionHead(3, VALUES)).choose_monitor(None, True) == "val/loss"
    assert HeadMetrics.of(RegressionHead(3, VALUES)).choose_monitor("val/rmse", True) == "val/rmse"
    single = RegressionHead(3, VALUES, targets=["b"])
    assert HeadMetrics.of(single).choose_monitor(None, True) == "val/rmse"


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [("val/rmse", "min"), ("val/mae/a", "min"), ("val/r2", "max"), ("val/loss", "min")],
)
def test_direction(monitor, mode):
    assert HeadMetrics.of(RegressionHead(3, VALUES)).mode(monitor) == mode


def test_a_metric_of_another_task_is_refused():
    with pytest.raises(ConfigError, match=r"'roc_auc' is for binary predictions, but .* are regr"):
        HeadMetrics.of(RegressionHead(3, VALUES), ["rmse", "roc_auc"])
    with pytest.raises(ConfigError, match=r"no metric 'rsme'. Did you mean 'rmse'"):
        HeadMetrics.of(RegressionHead(3, VALUES), ["rsme"])
    path = "graphfold.metrics.binary.roc_auc"
    with pytest.raises(ConfigError, match=r"is for binary predictions, but .* are regression"):
        HeadMetrics.of(RegressionHead(3, VALUES), [path])
    with pytest.raises(ConfigError, match=r"no Metric is there, but median. Decorate"):
        HeadMetrics.of(RegressionHead(3, VALUES), ["statistics.median"])
    with pytest.raises(ConfigError, match=r"there is no module 'statistic'"):
        HeadMetrics.of(RegressionHead(3, VALUES), ["statistic.median"])
    with pytest.raises(ConfigError, match="'root_binary_accuracy' is for 5 classes"):
        HeadMetrics.of(ClassificationHead(3, ASSAYS, target="a"), ["root_binary_accuracy"])
    with pytest.raises(ConfigError, match="two metrics are called 'mae'"):
        HeadMetrics.of(RegressionHead(3, VALUES), ["mae", "graphfold.metrics.regression.mae"])


def test_every_class_has_its_scores():
    rng = torch.Generator().manual_seed(0)
    classes, target = (torch.randint(0, 5, (80,), generator=rng) for _ in range(2))
    target[target == 3] = -1  # never measured, and so without a recall
    part = rows(torch.eye(5)[classes], target, list(range(80)), [True] * 80)
    (column,) = SENTIMENT.node_targets
    marks = replace(SENTIMENT, node_targets=(replace(column, names=("--", "-", "0", "+", "++")),))
    named = ClassificationHead(3, marks, "node")
    found = class_metrics(named, part)
    known = target >= 0
    wanted = reference.precision_recall_fscore_support(
        target[known], classes[known], labels=range(5), zero_division=0
    )
    for score, values in zip(("precision", "recall", "f1", "support"), wanted, strict=True):
        assert list(found[score]) == ["--", "-", "0", "+", "++"]
        got = [value or 0 for value in found[score].values()]
        assert got == pytest.approx(values.tolist())
    assert found["recall"]["+"] is None
    assert found["support"]["+"] == 0
    counts = confusion_counts(named, part)["label"]
    wanted = reference.confusion_matrix(target[known], classes[known], labels=range(5))
    assert [list(counts[name].values()) for name in counts] == wanted.T.tolist()


def test_several_targets_have_classes_of_their_own():
    target = torch.tensor([[1.0, 0.0], [0.0, float("nan")]])
    part = rows(torch.tensor([[0.9, 0.2], [0.6, 0.1]]), target, [0, 1], [True] * 2)
    found = class_metrics(MultiLabelHead(3, ASSAYS), part)
    assert found["precision"] == {"a/0": None, "a/1": 0.5, "b/0": 1.0, "b/1": None}
    assert found["support"] == {"a/0": 1, "a/1": 1, "b/0": 1, "b/1": 0}
    counts = confusion_counts(MultiLabelHead(3, ASSAYS), part)
    assert counts["a"] == {"0": {"0": 0, "1": 0}, "1": {"0": 1, "1": 1}}
    assert counts["b"] == {"0": {"0": 1}}


def test_a_loss_that_is_not_finite_is_undefined():
    part = sentiment([0, 1], [0, 1], [0, 1], [True, True])
    part.loss[1] = float("inf")
    assert split_metrics(head(), part)["loss"] is None
