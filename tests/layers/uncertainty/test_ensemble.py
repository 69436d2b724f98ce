"""Ensembles: means and deviations of members, and the protocol of models."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from layers.test_graph_model import TREES, batch_of, tree_model

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import (
    ClassificationHead,
    EvidentialHead,
    Head,
    MeanVarianceHead,
    MultiLabelHead,
    QuantileHead,
    RegressionHead,
)
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.numbers import NumberHead
from graphfold.layers.model import eager_cells
from graphfold.layers.uncertainty.ensemble import Ensemble, mixture

NUMBERS = Schema(types=(NodeType("atom", 0),), graph_targets=(Column("a"), Column("b")))
CLASSES = Schema(types=NUMBERS.types, graph_targets=(Column("kind", "int64", names=tuple("xyz")),))
ASSAYS = Schema(types=NUMBERS.types, graph_targets=(Column("t", "int64", size=2),))


def tree() -> TypedDAG:
    """Seven nodes with some absent children."""
    builder = GraphBuilder(TREES)
    node = builder.node("word", form=1, label=0)
    for form in range(3):
        word = builder.node("word", form=form, label=form)
        node = builder.node("pair", [node, word, None], label=form + 1)
    builder.output(node)
    builder.finish(score=1.0)
    return builder.build()


SCALERS = {"a": (10.0, 4.0), "b": (-1.0, 0.5)}


@torch.no_grad()
def mixed(heads: Sequence[Head], rows: torch.Tensor) -> Predicted:
    """The mixture of what heads predict, each of its own rows: [num_rows, num_heads, width]."""
    each = [head.predict(head(own)) for head, own in zip(heads, rows.unbind(1), strict=True)]
    return mixture(each, heads[0].task)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: RegressionHead(4, NUMBERS, scalers=SCALERS), ["std"]),
        (lambda: MeanVarianceHead(4, NUMBERS, scalers=SCALERS), ["std"]),
        (lambda: QuantileHead(4, NUMBERS, scalers=SCALERS), ["lower", "upper", "std"]),
        (lambda: ClassificationHead(4, CLASSES), ["std"]),
        (lambda: MultiLabelHead(4, ASSAYS), ["std"]),
    ],
)
@torch.no_grad()
def test_a_prediction_is_the_mixture_of_the_members(make, parts) -> None:
    heads: list[Head] = [make() for _ in range(4)]
    rows = torch.randn(9, 4, 4)
    each = np.stack([h.decode(h(rows[:, n])).numpy() for n, h in enumerate(heads)])
    got = mixed(heads, rows)
    assert list(got.parts) == parts
    has_parts = len(heads[0].parts) > 1
    values = each[..., 0] if has_parts else each
    np.testing.assert_allclose(got.value, values.mean(0), rtol=1e-5)
    variance = values.var(0, ddof=1)
    if heads[0].parts == ("pred", "std"):
        variance = variance + np.square(each[..., 1]).mean(0)
    np.testing.assert_allclose(got.parts["std"], np.sqrt(variance), rtol=1e-4)
    if "lower" in parts:
        ends = np.stack([got.parts["lower"], got.parts["upper"]], -1)
        np.testing.assert_allclose(ends, each[..., 1:3].mean(0), rtol=1e-5)
    columns = {c.name: c.values(got) for c in heads[0].output_columns(parts)}
    for target in heads[0].targets:
        assert all(value >= 0 for value in columns[f"{target}_std"])


def test_the_deviation_of_a_class_is_that_of_its_probability() -> None:
    heads = [ClassificationHead(4, CLASSES) for _ in range(3)]
    rows = torch.randn(5, 3, 4)
    with torch.no_grad():
        each = torch.stack([h.decode(h(rows[:, n])) for n, h in enumerate(heads)])
        predicted = mixed(heads, rows)
    columns = {c.name: c.values(predicted) for c in heads[0].output_columns(["std"])}
    assert [*columns] == ["kind_pred", *(f"kind_prob_{n}" for n in "xyz"), "kind_std"]
    for number, value in enumerate(columns["kind_pred"]):
        best = "xyz".index(value)
        assert best == int(each[:, number].mean(0).argmax())
        want = float(each[:, number, best].std(correction=1))
        assert columns["kind_std"][number] == pytest.approx(want, abs=1e-6)


LIMITED = {"a": (10.0, 4.0, 0.0, 20.0), "b": (-1.0, 0.5, -2.0, 0.0)}


@pytest.mark.parametrize("kind", [RegressionHead, MeanVarianceHead, QuantileHead, EvidentialHead])
def test_members_beyond_a_limit_are_as_far_apart_as_they_are(kind: type[NumberHead]) -> None:
    """Far outside of training all members stand at the limit, and disagree about everything."""
    torch.manual_seed(0)  # some of the rows have to lie within the limits
    heads = [kind(4, NUMBERS, scalers=LIMITED) for _ in range(3)]
    free = [kind(4, NUMBERS, scalers={k: v[:2] for k, v in LIMITED.items()}) for _ in range(3)]
    for own, other in zip(heads, free, strict=True):
        other.load_state_dict(own.state_dict())
    rows = torch.randn(1000, 3, 4) * 40
    got, want = mixed(heads, rows), mixed(free, rows)
    torch.testing.assert_close(got.parts["std"], want.parts["std"])
    assert (got.parts["std"] > 0).all()
    low, high = torch.tensor([-10.0, -3.0]), torch.tensor([30.0, 1.0])  # half a range beyond
    assert ((got.value >= low - 1e-5) & (got.value <= high + 1e-5)).all()
    pairs = zip(heads, rows.unbind(1), strict=True)
    each = torch.stack([head.predict(head(own)).value.detach() for head, own in pairs])
    torch.testing.assert_close(got.value, each.mean(0))
    seen = set()
    columns = {c.name: c.values(got) for c in heads[0].output_columns()}
    for row, (values, middle) in enumerate(zip(each.unbind(1), want.value, strict=True)):
        for number, name in enumerate(("a", "b")):
            moved = float(middle[number] - values[:, number].mean())
            want_limit = None if not moved else "high" if moved > 0 else "low"
            assert columns[f"{name}_limit"][row] == want_limit
            seen.add(want_limit)
            if "lower" in got.parts:
                lower, value, upper = (columns[f"{name}_{p}"][row] for p in ENDS)
                assert lower <= value <= upper
    assert seen == {"low", "high", None}


ENDS = ("lower", "pred", "upper")


def test_equal_members_are_at_no_distance() -> None:
    head = RegressionHead(4, NUMBERS, scalers=LIMITED)
    for count in (1, 2, 3):
        raw = torch.randn(50, 2) * 5
        got = mixture([head.predict(raw)] * count, head.task)
        assert (got.parts["std"] == 0).all()
        torch.testing.assert_close(got.value, head.decode(raw))


def test_an_interval_of_quantiles_beyond_a_limit_is_not_cut_off() -> None:
    head = QuantileHead(4, NUMBERS, scalers=LIMITED)
    raw = torch.tensor([[[9.0, 7.0, 12.0], [0.0, -1.0, 1.0]]])
    value, lower, upper = head.decode(raw)[0, 0].tolist()
    assert (value, lower, upper) == (30.0, 30.0, 10 + 4 * 12)
    assert head.decode(raw)[0, 1].tolist() == [-1.0, -1.5, -0.5]


def test_an_ensemble_is_its_members_side_by_side() -> None:
    dag = tree()
    trees = [tree_model().eval() for _ in range(3)]
    model = Ensemble(trees).eval()
    batch = batch_of(dag, trees[0])
    raw = model(batch)
    want = torch.stack([tree(batch) for tree in trees], dim=1)
    torch.testing.assert_close(raw, want)
    states = model.states(batch)
    assert set(states) == {f"{n}.{field}" for n in range(3) for field in ("h", "c")}
    torch.testing.assert_close(states["2.h"], trees[2].states(batch)["h"])
    targets = model.head.target_rows(dag)
    losses = torch.stack([t.head.losses(t(batch), targets) for t in trees]).mean(0)
    torch.testing.assert_close(model.losses(raw, targets), losses)
    assert model.networks == [tree.network for tree in trees]
    with eager_cells(model):
        assert {tree.network.run for tree in trees} == {"eager"}
    assert {tree.network.run for tree in trees} != {"eager"}
    copied = copy.deepcopy(model)
    torch.testing.assert_close(copied(batch), raw)
    assert copied.head.layers is copied.members[0].head.layers
    with torch.no_grad():
        copied.members[2].head.layers[-1].weight.zero_()
    changed = (copied(batch) != raw).flatten(2).any(2).any(0)
    assert changed.tolist() == [False, False, True]
