"""Metrics and their labels, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from block_checks import WAYS, exactly
from torch import nn

from graphfold import blocks as td


def by_sign(shape: list[int]) -> td.Block:
    """Gives a tensor back and notes it as positive or as negative."""
    composition = td.Composition()
    with composition.scope():
        td.OneOf(
            lambda x: bool(torch.as_tensor(x).sum() > 0),
            (td.Metric("negative"), td.Metric("positive")),
            pre_block=td.Tensor(shape),
        ).reads(composition.input)
        composition.output.reads(td.Tensor(shape).reads(composition.input))
    return composition


def labelled() -> td.Block:
    """Trees (value, label, child, ...)."""
    tree = td.ForwardDeclaration()
    value = (td.Scalar("int32"), td.Identity())
    leaf = value >> td.Metric("leaf")
    own = (td.Scalar("int32"), td.Identity()) >> td.Metric("internal")
    internal = td.AllOf(own, td.Slice(start=2) >> td.Map(tree())) >> td.Void()
    block = td.OneOf(lambda x: len(x) > 2, (leaf, internal))
    tree.resolve_to(block)
    return block


#: A batch, its sums, what is positive and what is negative.
SIGNS: list[tuple[list[list[float]], list[float], list[float], list[float]]] = [
    ([[1, 2, 3, 4]], [10], [1, 2, 3, 4], []),
    ([[1, -2, 3, -4, 5, -6]], [-3], [1, 3, 5], [-2, -4, -6]),
    ([[-1, -2]], [-3], [], [-1, -2]),
    ([[1, 2, -3, -4], [5, 6, -7, -8, 0]], [-4, -4], [1, 2, 5, 6], [-3, -4, -7, -8, 0]),
    ([[]], [0], [], []),
]


@pytest.mark.parametrize(("batch", "sums", "positive", "negative"), SIGNS)
def test_values_keep_the_order_of_examples(
    batch: Any, sums: list[float], positive: list[float], negative: list[float]
) -> None:
    model = td.compile(td.Map(by_sign([])) >> td.Sum())
    for way in WAYS:
        model.run = way
        result = model.result(batch)
        assert result.output.tolist() == sums
        assert result.metrics["positive"].tolist() == positive
        assert result.metrics["negative"].tolist() == negative
        assert result.labels == {}


def test_values_may_be_vectors() -> None:
    model = td.compile(td.Map(by_sign([2])) >> td.Sum())
    result = model.result([[[1, 2], [-2, -3], [4, 5]]])
    assert result.output.tolist() == [[3.0, 4.0]]
    assert result.metrics["positive"].tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert result.metrics["negative"].tolist() == [[-2.0, -3.0]]
    assert model.result([[]]).metrics["positive"].shape == (0, 2)


def test_labels_come_back_beside_their_values() -> None:
    trees = [[1, "a", [2, "b"], [3, "c"], [4, "d"]], [5, "e", [6, "f", [7, "g"]]]]
    model = td.compile(labelled())
    for way in WAYS:
        model.run = way
        result = model.result(trees)
        assert result.output is None
        assert result.labels == {"leaf": ["b", "c", "d", "g"], "internal": ["a", "e", "f"]}
        values = {name: value.tolist() for name, value in result.metrics.items()}
        exactly(values, {"internal": [1, 5, 6], "leaf": [2, 3, 4, 7]})
    assert labelled().eval(trees[1], tolist=True) == (None, {"internal": [5, 6], "leaf": [7]})


def test_labels_may_be_anything() -> None:
    block = td.Map((td.Scalar(), td.Identity()) >> td.Metric("m")) >> td.Void()
    labels = [None, {"a": [1]}, [1, 2], "x", "x"]
    result = td.compile(block).result([[(n, label) for n, label in enumerate(labels)]])
    assert result.labels == {"m": labels}


def test_labels_stay_beside_their_values() -> None:
    plain, with_label = td.Metric("m"), td.Metric("m")
    pair = (td.Scalar(), td.Identity()) >> with_label
    block = td.Map(td.OneOf(lambda x: isinstance(x, tuple), (td.Scalar() >> plain, pair)))
    model = td.compile(block >> td.Void())
    result = model.result([[1, (2, "two")], [(3, "three")]])
    assert result.metrics["m"].tolist() == [1, 2, 3]
    assert result.labels == {"m": [None, "two", "three"]}
    assert model.result([[]]).labels == {"m": []}


def test_a_loss_may_be_a_metric() -> None:
    weight = nn.Parameter(torch.tensor(3.0))
    block = td.Map(td.AllOf(td.Scalar(), weight) >> td.Function(torch.mul) >> td.Metric("m"))
    block.eval([1, 2])[1]["m"].sum().backward()
    assert weight.grad == 3.0
    td.compile(block >> td.Void()).result([[1, 2], [4]]).metrics["m"].sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad == 10.0


def test_a_name_may_be_any_object() -> None:
    model = td.compile((td.Scalar() >> td.Metric(3), td.Scalar() >> td.Metric("3")) >> td.Void())
    assert model.result([(1, 2)]).metrics["3"].tolist() == [1.0, 2.0]
