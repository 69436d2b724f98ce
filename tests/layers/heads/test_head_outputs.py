"""Heads: predictions, columns, confusion and pictures, and which one auto takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import (
    ClassificationHead,
    Head,
    MultiLabelHead,
    PairClassificationHead,
    RegressionHead,
    RelatednessHead,
)
from graphfold.layers.heads.automatic import HEADS, choose_head
from graphfold.layers.heads.eval_rows import EvalRows, Predicted
from graphfold.layers.heads.output_column import by_target, seven_digits

NAN = float("nan")
SCHEMA = Schema(
    types=(NodeType("word", 0),),
    node_targets=(Column("tag", "int64", size=3),),
    graph_targets=(
        Column("answer", "int64", names=("no", "maybe", "yes")),
        Column("logS", unit="log mol/L"),
        Column("energy"),
        Column("toxic", "int64", names=("safe", "toxic")),
        Column("active", "int32", size=2),
    ),
)
CLASSES = ClassificationHead(4, SCHEMA, "graph", "answer")
NUMBERS = RegressionHead(4, SCHEMA, "graph", ["logS", "energy"])
ASSAYS = MultiLabelHead(4, SCHEMA, "graph", ["toxic", "active"])


def eval_rows(prediction: torch.Tensor, target: torch.Tensor) -> EvalRows:
    numbers = torch.arange(len(target))
    return EvalRows(
        Predicted(prediction), target, numbers * 0.0, numbers, numbers >= 0, len(target)
    )


def test_rows_of_predictions_are_selected_and_joined_with_their_parts() -> None:
    value = torch.arange(6, dtype=torch.float64).view(3, 2)
    whole = Predicted(value, {"std": value + 1, "is_high": value.unsqueeze(-1) > 2})
    ends, middle = whole[torch.tensor([True, False, True])], whole[1:2]
    assert (len(whole), len(ends), len(middle)) == (3, 2, 1)
    joined = Predicted.cat([middle, ends])
    assert joined.value.equal(value[[1, 0, 2]])
    assert joined.parts["std"].equal(joined.value + 1)
    assert joined.parts["is_high"].equal(joined.value.unsqueeze(-1) > 2)
    single = whole.float()
    assert {name: part.dtype for name, part in single.parts.items()} == {
        "std": torch.float32, "is_high": torch.bool,
    }  # fmt: skip
    assert single.unlimited.equal(value.float())
    assert whole.with_parts(unlimited=value * 2).unlimited.equal(value * 2)


def columns_of(head: Head, prediction: list[list[float]]) -> dict[str, list[Any]]:
    predicted = Predicted(torch.tensor(prediction))
    return {column.name: column.values(predicted) for column in head.output_columns()}


def test_columns_of_classes_have_names_and_probabilities() -> None:
    assert columns_of(CLASSES, [[0.2, 0.7, 0.1], [0.5, 0.2, 0.3]]) == {
        "answer_pred": ["maybe", "no"],
        "answer_prob_no": [0.2, 0.5],
        "answer_prob_maybe": [0.7, 0.2],
        "answer_prob_yes": [0.1, 0.3],
    }  # fmt: skip
    without_names = columns_of(ClassificationHead(4, SCHEMA, "node"), [[0.2, 0.7, 0.1]])
    assert without_names == {
        "tag_pred": [1], "tag_prob_0": [0.2], "tag_prob_1": [0.7], "tag_prob_2": [0.1],
    }  # fmt: skip


def test_columns_of_yes_and_no_and_of_numbers() -> None:
    assert columns_of(ASSAYS, [[0.75, 0.25]]) == {
        "toxic_pred": ["toxic"], "toxic_prob_safe": [0.25], "toxic_prob_toxic": [0.75],
        "active_pred": [0], "active_prob_0": [0.75], "active_prob_1": [0.25],
    }  # fmt: skip
    assert columns_of(NUMBERS, [[0.1, NAN]]) == {"logS_pred": [0.1], "energy_pred": [None]}


@pytest.mark.parametrize("head", [CLASSES, NUMBERS, ASSAYS])
def test_columns_say_their_types_and_targets(head: Head) -> None:
    predicted = head.predict(torch.zeros(1, 3 if head is CLASSES else 2))
    for column in head.output_columns():
        assert type(column.values(predicted)[0]) is column.type
        assert column.values(predicted[:0]) == []
    told = by_target(head.output_columns())([c.values(predicted)[0] for c in head.output_columns()])
    assert [*told] == [*head.targets]
    for column, one in zip(head.columns, told.values(), strict=True):
        assert [*one.probabilities] == [*head.labels(column)]


def test_measured_values_have_the_names_of_predictions() -> None:
    assert CLASSES.measured_values(torch.tensor([2, -1])) == [{"answer": "yes"}, {}]
    targets = torch.tensor([[1.0, NAN], [NAN, 0.0]])
    assert ASSAYS.measured_values(targets) == [{"toxic": "toxic"}, {"active": 0}]
    assert NUMBERS.measured_values(targets) == [{"logS": 1.0}, {"energy": 0.0}]


def test_confusion_counts_what_is_measured() -> None:
    prediction = torch.eye(3)[[0, 1, 1, 2]]
    (table,) = CLASSES.confusion(Predicted(prediction), torch.tensor([0, 0, 1, -1])).values()
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    targets = torch.tensor([[1.0, NAN], [0.0, 0.0]])
    tables = ASSAYS.confusion(Predicted(torch.tensor([[0.9, 0.9], [0.8, 0.1]])), targets)
    assert tables["toxic"].tolist() == [[0, 1], [0, 1]]
    assert tables["active"].tolist() == [[1, 0], [0, 0]]
    assert NUMBERS.confusion(Predicted(targets), targets) == {}


def texts(figure: Any) -> set[str]:
    axes = figure.axes
    return {text for a in axes for text in (a.get_title(), a.get_xlabel(), a.get_ylabel()) if text}


def test_every_head_has_a_picture_of_what_is_measured() -> None:
    numbers = torch.tensor([[1.0, NAN], [2.0, NAN]])
    figure = NUMBERS.plot(eval_rows(numbers.nan_to_num(3.0), numbers))
    assert texts(figure) == {"logS", "measured (log mol/L)", "predicted"}
    assays = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    figure = ASSAYS.plot(eval_rows(torch.full((2, 2), 0.3), assays))
    assert texts(figure) == {"toxic", "active", "predicted probability of class 1"}
    figure = CLASSES.plot(eval_rows(torch.eye(3), torch.tensor([0, 1, 1])))
    assert {"predicted class", "class"} <= texts(figure)
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert shown == ["no", "maybe", "yes"]


def test_nothing_measured_has_no_picture() -> None:
    nothing = torch.full((2, 2), NAN)
    assert NUMBERS.plot(eval_rows(torch.zeros(2, 2), nothing)) is None
    assert ASSAYS.plot(eval_rows(torch.zeros(2, 2), nothing)) is None
    assert CLASSES.plot(eval_rows(torch.eye(3), torch.full((3,), -1))) is None


def columns(*names: str) -> list[Column]:
    known = {column.name: column for column in (*SCHEMA.graph_targets, *SCHEMA.node_targets)}
    return [known[name] for name in names]


@pytest.mark.parametrize(
    ("names", "level", "pairs", "task", "wanted"),
    [
        (["logS"], "graph", False, None, RegressionHead),
        (["logS", "energy"], "graph", False, "regression", RegressionHead),
        (["answer"], "graph", False, None, ClassificationHead),
        (["tag"], "node", False, None, ClassificationHead),
        (["toxic"], "graph", False, None, ClassificationHead),
        (["toxic"], "graph", False, "classification", MultiLabelHead),
        (["toxic", "active"], "graph", False, None, MultiLabelHead),
        (["logS"], "graph", True, None, RelatednessHead),
        (["logS", "answer"], "graph", True, None, RelatednessHead),
        (["answer"], "graph", True, None, PairClassificationHead),
        (["logS", "answer"], "graph", False, None, HEADS[-1]),
    ],
)
def test_auto_takes_the_head_that_suits(
    names: list[str], level: str, pairs: bool, task: str | None, wanted: type[Head]
) -> None:
    asked = [replace(column, task=task) for column in columns(*names)]
    assert choose_head(asked, level, pairs) is wanted


@given(st.lists(st.floats(width=32), max_size=20))
@example([0.0, -0.0, 1.0, 1e-20, 1e-45, 9.9999995e-5, 0.99999994, 9999999.0, 1e7, 3.4e38, NAN])
def test_rounding_together_is_formatting_with_seven_digits(numbers: list[float]) -> None:
    given_ones = torch.tensor(numbers)
    wanted = [str(float(f"{number:.7g}")) for number in given_ones.tolist()]
    assert list(map(str, seven_digits(given_ones))) == wanted
