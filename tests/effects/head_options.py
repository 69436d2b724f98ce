"""Options of heads: what they change in losses, predictions and weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from effects import walk
from effects.table import Rows
from torch import Tensor

import graphfold.layers as layers
from graphfold.dag import Column, NodeType, Schema
from graphfold.errors import ConfigError, DataError
from graphfold.layers import Head

ROWS = row = Rows()

SIZE, COUNT = 4, 6
SCHEMA = Schema(
    types=(NodeType("atom", 0),),
    graph_targets=(
        *(Column("a"), Column("b")),
        *(Column("kind", "int64", size=3), Column("other", "int64", size=3)),
        *(Column("yes", "int64", size=2), Column("no", "int64", size=2)),
    ),
)
SCALERS = {"a": (10.0, 4.0, -50.0, 50.0), "b": (5.0, 2.0, -50.0, 50.0)}

#: The heads of one class or score, and the target of each.
SINGLE = {"ClassificationHead": "kind", "PairClassificationHead": "kind", "RelatednessHead": "a"}
#: The others, and their targets.
SEVERAL = {"MultiLabelHead": ["yes", "no"]}

same = torch.testing.assert_close


def ids(option: str) -> list[str]:
    """The ids of an option in all heads that have it."""
    return sorted(
        name for name in walk.options() if name.endswith(f"Head.{option}") and "Model" not in name
    )


def make(name: str, **options: Any) -> Head:
    """A head, always with the same initial weights."""
    torch.manual_seed(5)
    kind = getattr(layers, name)
    given: dict[str, Any] = {"input_size": SIZE, "schema": SCHEMA}
    if name in SINGLE:
        given["target"] = SINGLE[name]
    else:
        given["targets"] = SEVERAL.get(name, ["a", "b"])
        if name not in SEVERAL:
            given["scalers"] = SCALERS
    head: Head = kind(**{**given, **options})
    return head.double().eval()


def rows(head: Head) -> Tensor:
    """Rows of a readout."""
    draw = torch.Generator().manual_seed(0)
    shape = (COUNT, 2, SIZE) if head.pairs else (COUNT, SIZE)
    return torch.randn(shape, generator=draw, dtype=torch.float64)


def targets(head: Head) -> Tensor:
    """Measured values of these rows, every class among them."""
    draw = torch.Generator().manual_seed(1)
    if head.task == "multiclass":
        return torch.arange(COUNT) % 3
    if head.task == "binary":
        return torch.tensor([[i % 2, i // 3] for i in range(COUNT)], dtype=torch.float64)
    values = torch.rand(COUNT, len(head.columns), generator=draw, dtype=torch.float64)
    return 1 + 4 * values


def losses(head: Head, **changed: Any) -> Tensor:
    raw = head(rows(head))
    return head.losses(raw, changed.get("targets", targets(head)))


def name_of(option: str) -> str:
    return option.partition(".")[0]


@row.changes(ids("hidden_size"), "a hidden layer of that width, or none")
def _(option):
    name = name_of(option)
    for width in (7, 9):
        shapes = {tuple(p.shape) for p in make(name, hidden_size=width).parameters()}
        assert any(shape[0] == width for shape in shapes)
        assert any(shape[-1] == width for shape in shapes if len(shape) == 2)
    if name not in ("PairClassificationHead", "RelatednessHead"):  # which always have one
        assert len([*make(name, hidden_size=None).parameters()]) == 2


@row.changes(ids("dropout"), "in training, and only there, entries of the rows are dropped")
def _(option):
    plain, dropping = (make(name_of(option), dropout=p) for p in (0.0, 0.5))
    x = rows(plain)
    assert torch.equal(plain(x), dropping(x))
    assert torch.equal(plain.train()(x), plain.eval()(x))
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(dropping.train()(x))
    assert torch.equal(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2])


@row.changes([*ids("targets"), *ids("target")], "which targets are predicted, and in which order")
def _(option):
    name = name_of(option)
    if name in SINGLE:
        other = {"kind": "other", "a": "b"}[SINGLE[name]]
        assert make(name, target=other).targets == (other,)
        with pytest.raises(ConfigError, match="no target 'absent'"):
            make(name, target="absent")
        return
    first, second = SEVERAL.get(name, ["a", "b"])
    assert make(name, targets=[second]).targets == (second,)
    both, swapped = make(name), make(name, targets=[second, first])
    assert swapped.targets == (second, first)
    own = targets(both)
    raw = both(rows(both))
    same(both.losses(raw, own), swapped_losses(swapped, raw, own))
    with pytest.raises(ConfigError, match="no target 'absent'"):
        make(name, targets=["absent"])


def swapped_losses(head: Head, raw: Tensor, values: Tensor) -> Tensor:
    return head.losses(raw.flip(1), values.flip(1))


@row.changes(ids("target_weights"), "the weight of each target in the mean; 0 leaves it out")
def _(option):
    name = name_of(option)
    first, second = SEVERAL.get(name, ["a", "b"])
    plain = losses(make(name))
    assert torch.equal(losses(make(name, target_weights={first: 1.0, second: 1.0})), plain)
    parts = [
        losses(make(name, target_weights=weights))
        for weights in ({first: 0.0}, {second: 0.0}, {first: 3.0, second: 2.0})
    ]
    same(parts[0] + parts[1], plain)
    same(parts[2], 3 * parts[1] + 2 * parts[0])
    with pytest.raises(ConfigError, match="which is no target"):
        make(name, target_weights={"absent": 1.0})


@row.changes(ids("class_weights"), "the weight of the loss of each true class; 0 leaves it out")
def _(option):
    name = name_of(option)
    plain = losses(make(name))
    if name == "MultiLabelHead":
        ones, twice, none = ([1.0, 1.0], [1.0, 2.0], [0.0, 1.0])
        assert torch.equal(losses(make(name, class_weights=ones)), plain)
        no, yes = (losses(make(name, class_weights=w)) for w in ([1.0, 0.0], none))
        same(no + yes, plain)
        same(losses(make(name, class_weights=twice)), no + 2 * yes)
        return
    classes = targets(make(name))
    assert torch.equal(losses(make(name, class_weights=[1.0, 1.0, 1.0])), plain)
    weighted = losses(make(name, class_weights=[0.0, 2.0, 5.0]))
    same(weighted, plain * torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)[classes])
    same(losses(make(name, class_weights={"kind": [0.0, 2.0, 5.0]})), weighted)


@row.changes("RegressionHead.loss", "the squared, the absolute or Huber's error, standardised")
def _():
    head = make("RegressionHead")
    error = head(rows(head)) - (targets(head) - head.mean) / head.std
    same(losses(make("RegressionHead", loss="mse")), error.square().mean(1))
    same(losses(make("RegressionHead", loss="mae")), error.abs().mean(1))
    with pytest.raises(ConfigError, match="no loss 'rmse'"):
        make("RegressionHead", loss="rmse")


@row.changes("RegressionHead.delta", "where Huber's loss becomes linear")
def _():
    head = make("RegressionHead")
    error = (head(rows(head)) - (targets(head) - head.mean) / head.std).abs()
    for delta in (0.3, 2.0):
        expected = torch.where(error <= delta, error**2 / 2, delta * (error - delta / 2)).mean(1)
        same(losses(make("RegressionHead", loss="huber", delta=delta)), expected)
    assert torch.equal(losses(make("RegressionHead", delta=0.3)), losses(make("RegressionHead")))


@row.changes("EvidentialHead.evidence_penalty", "λ, the price of evidence for what is wrong")
def _():
    head = make("EvidentialHead")
    gamma, nu, alpha, _ = head(rows(head)).unbind(2)
    error = ((targets(head) - head.mean) / head.std - gamma).abs()
    free = losses(make("EvidentialHead", evidence_penalty=0.0))
    priced = losses(make("EvidentialHead", evidence_penalty=0.7))
    same(priced - free, 0.7 * (error * (2 * nu + alpha)).mean(1))


@row.changes("QuantileHead.interval", "the share of the values between the outer quantiles")
def _():
    head = make("QuantileHead")
    wanted = ((targets(head) - head.mean) / head.std).unsqueeze(2)
    error = wanted - head(rows(head))
    for interval in (0.5, 0.9):
        q = torch.tensor([0.5, (1 - interval) / 2, (1 + interval) / 2], dtype=torch.float64)
        expected = torch.maximum(q * error, (q - 1) * error).mean((1, 2))
        same(losses(make("QuantileHead", interval=interval)), expected, rtol=1e-6, atol=1e-6)


@row.changes(["RelatednessHead.low", "RelatednessHead.high"], "the ends of the scale")
def _():
    head = make("RelatednessHead", low=2, high=4)
    prediction = head.decode(head(rows(head)))
    assert ((prediction >= 2) & (prediction <= 4)).all()
    assert head(rows(head)).shape[1] == 3
    same(
        head.decode(torch.eye(3, dtype=torch.float64) * 1e9).view(-1),
        torch.arange(2.0, 5.0).double(),
    )
    with pytest.raises(DataError, match="outside 2 .. 4"):
        losses(head, targets=torch.full((COUNT, 1), 1.5, dtype=torch.float64))
    with pytest.raises(ConfigError, match="is empty"):
        make("RelatednessHead", low=4, high=4)
