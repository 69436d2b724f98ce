"""Losses of heads, against torch, scikit-learn and scipy; weights, holes and bounds of targets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.dag.schema import ABOVE, BELOW
from graphfold.errors import ConfigError
from graphfold.layers import (
    ClassificationHead,
    EvidentialHead,
    Head,
    MeanVarianceHead,
    MultiLabelHead,
    QuantileHead,
    RegressionHead,
)
from graphfold.layers.heads.automatic import choose_head
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.numbers import NumberHead
from graphfold.training.config.build_model import balanced_weights
from graphfold.training.scoring import HeadMetrics

NAN = float("nan")
SIZE, ROWS = 4, 40
SCHEMA = Schema(
    types=(NodeType("atom", 0),),
    graph_features=(Column("b:bound", "int64", size=3),),
    graph_targets=(Column("a"), Column("b"), Column("kind", "int64", size=3)),
)
NUMBERS = ["a", "b"]
SCALERS = {"a": (10.0, 4.0), "b": (-1.0, 0.5)}
HEADS: list[Callable[..., NumberHead]] = [
    RegressionHead,
    lambda *args, **more: RegressionHead(*args, loss="mae", **more),
    lambda *args, **more: RegressionHead(*args, loss="huber", delta=0.7, **more),
    QuantileHead,
    MeanVarianceHead,
    EvidentialHead,
]


def outputs(head: NumberHead) -> tuple[Tensor, Tensor, Tensor]:
    """Raw outputs of some rows, targets in their units, and these standardised."""
    torch.manual_seed(0)
    raw = head.double()(3 * torch.randn(ROWS, SIZE, dtype=torch.float64)).detach()
    standard = torch.randn(ROWS, 2, dtype=torch.float64)
    return raw, standard * head.std + head.mean, standard


def make(kind: Callable[..., NumberHead], **options: object) -> NumberHead:
    return kind(SIZE, SCHEMA, "graph", NUMBERS, SCALERS, **options)


@pytest.mark.parametrize(
    ("head", "theirs"),
    [
        (make(HEADS[0]), nn.MSELoss(reduction="none")),
        (make(HEADS[1]), nn.L1Loss(reduction="none")),
        (make(HEADS[2]), nn.HuberLoss(reduction="none", delta=0.7)),
    ],
)
def test_losses_of_errors_are_those_of_torch(head: NumberHead, theirs: nn.Module) -> None:
    raw, targets, standard = outputs(head)
    torch.testing.assert_close(head.losses(raw, targets), theirs(raw, standard).mean(1))


def test_the_quantile_loss_is_the_pinball_loss_of_scikit_learn() -> None:
    pinball = pytest.importorskip("sklearn.metrics").mean_pinball_loss
    head = make(QuantileHead, interval=0.8)
    raw, targets, standard = outputs(head)
    want = [
        pinball(standard.numpy(), raw[..., i].detach().numpy(), alpha=alpha)
        for i, alpha in enumerate([0.5, 0.1, 0.9])
    ]
    assert float(head.losses(raw, targets).mean()) == pytest.approx(np.mean(want))
    decoded = head.decode(raw)
    torch.testing.assert_close(decoded[..., 1], raw[..., 1] * head.std + head.mean)


def test_the_loss_of_mean_and_variance_is_that_of_torch() -> None:
    head = make(MeanVarianceHead)
    raw, targets, standard = outputs(head)
    std = head.decode(raw)[..., 1] / head.std
    theirs = nn.GaussianNLLLoss(reduction="none")(raw[..., 0], standard, std.square())
    torch.testing.assert_close(head.losses(raw, targets), theirs.mean(1))


def test_the_evidential_loss_is_the_likelihood_of_student_s_t() -> None:
    stats = pytest.importorskip("scipy.stats")
    head = make(EvidentialHead, evidence_penalty=0.0)
    raw, targets, standard = outputs(head)
    gamma, nu, alpha, beta = (part.detach().numpy() for part in raw.unbind(2))
    law = stats.t(2 * alpha, loc=gamma, scale=np.sqrt(beta * (1 + nu) / (nu * alpha)))
    want = -law.logpdf(standard.numpy()).mean(1)
    np.testing.assert_allclose(head.losses(raw, targets).detach().numpy(), want, rtol=1e-6)
    std = head.decode(raw)[..., 1].detach().numpy() / head.std.numpy()
    np.testing.assert_allclose(std, law.std(), rtol=1e-6)
    dear = make(EvidentialHead, evidence_penalty=0.5).double()
    price = dear.losses(raw, targets) - head.losses(raw, targets)
    error = np.abs(standard.numpy() - gamma)
    np.testing.assert_allclose(
        price.detach().numpy(), 0.5 * (error * (2 * nu + alpha)).mean(1), rtol=1e-6
    )


@given(st.lists(st.floats(-50, 50, width=32), min_size=6, max_size=6))
def test_quantiles_never_cross(values: list[float]) -> None:
    head = QuantileHead(6, Schema(types=SCHEMA.types, graph_targets=(Column("a"),)))
    head.layers = nn.Sequential(nn.Linear(6, 3))
    median, lower, upper = head.decode(head(torch.tensor([values])))[0, 0].tolist()
    assert lower <= median <= upper


@pytest.mark.parametrize("kind", HEADS)
def test_gradients_are_right_and_holes_have_none(kind: Callable[..., NumberHead]) -> None:
    head = make(kind).double()
    rows = torch.randn(3, SIZE, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[9.0, -1.3], [NAN, -0.4], [NAN, NAN]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: head.losses(head(x), targets), (rows,))
    losses = head.losses(head(rows), targets)
    losses.sum().backward()
    assert rows.grad is not None
    assert not rows.grad[2].any()
    assert rows.grad[1].any()
    assert rows.grad.isfinite().all()
    assert losses[2] == 0


@pytest.mark.parametrize("kind", HEADS)
def test_predictions_stay_near_the_range_of_the_training_targets(
    kind: Callable[..., NumberHead],
) -> None:
    ranges = {name: (*scale, 2.0, 6.0) for name, scale in SCALERS.items()}
    head, free = (kind(SIZE, SCHEMA, "graph", NUMBERS, own) for own in (ranges, SCALERS))
    rows = 100 * torch.randn(ROWS, SIZE)
    free.load_state_dict(head.state_dict())
    predicted, wanted = head.predict(head(rows)), free.predict(free(rows)).value
    actual, side = predicted.value, predicted.parts["limit"]
    assert side[:, 0].equal((actual[:, 0] == 8).float() - (actual[:, 0] == 0).float())
    assert side[:, 0].any()
    assert not side[:, 1].any()
    torch.testing.assert_close(predicted.unlimited, wanted)
    torch.testing.assert_close(actual[:, 0], wanted[:, 0].clamp(0.0, 8.0))
    torch.testing.assert_close(actual[:, 1], wanted[:, 1])  # it has bounds
    assert not actual[:, 0].equal(wanted[:, 0])


@pytest.mark.parametrize("kind", HEADS)
def test_a_bounded_target_costs_nothing_beyond_its_bound(kind: Callable[..., NumberHead]) -> None:
    head = make(kind)
    raw, targets, _ = outputs(head)
    bound = torch.zeros_like(targets)
    bound[:, 1] = torch.where(torch.arange(ROWS) % 2 == 0, float(ABOVE), float(BELOW))
    got = head.losses(raw, torch.stack([targets, bound], 2))
    predicted = head.predict(raw).value[:, 1]
    above = bound[:, 1] == ABOVE
    is_beyond = torch.where(above, predicted >= targets[:, 1], predicted <= targets[:, 1])
    holes = targets.clone()
    holes[is_beyond, 1] = NAN
    torch.testing.assert_close(got, head.losses(raw, holes))
    assert 0 < int(is_beyond.sum()) < ROWS


def test_bounds_come_with_the_graphs_and_are_left_out_of_metrics() -> None:
    builder = GraphBuilder(SCHEMA)
    for b, bound in ((1.0, 0), (5.0, ABOVE), (2.0, BELOW), (None, 0)):
        builder.output(builder.node("atom"))
        builder.finish(columns={"a": 0.5, "b": b, "kind": 1, "b:bound": bound})
    head = make(RegressionHead)
    targets = head.target_rows(builder.build())
    assert targets.shape == (4, 2, 2)
    assert head.measured(targets)[:, 1].tolist() == [True, True, True, False]
    inputs = head.metric_inputs(Predicted(torch.zeros(4, 2)), targets)
    assert inputs["b"][1].tolist() == [1.0]
    assert len(inputs["a"][1]) == 4
    told = [row.get("b") for row in head.measured_values(targets)]
    assert told == [1.0, ">5", "<2", None]
    (metric_rows,) = RegressionHead(SIZE, SCHEMA, "graph", ["a"]).target_rows(builder.build()).T
    assert metric_rows.tolist() == [0.5] * 4


@pytest.mark.parametrize("kind", HEADS)
def test_several_numbers_are_monitored_by_their_loss(kind: Callable[..., NumberHead]) -> None:
    """The loss is in units of each target's deviation, so it can compare several targets."""
    for metrics in (None, ["mae", "rmse"]):
        head = kind(SIZE, SCHEMA, "graph", NUMBERS)
        assert HeadMetrics.of(head, metrics).choose_monitor(None, True) == "val/loss"
    single = kind(SIZE, SCHEMA, "graph", ["a"])
    monitor = HeadMetrics.of(single).choose_monitor(None, True)
    assert (monitor == "val/loss") == (single.outputs > 1)


@pytest.mark.parametrize("kind", HEADS)
def test_targets_have_weights(kind: Callable[..., NumberHead]) -> None:
    plain, weighed = make(kind), make(kind, target_weights={"b": 3})
    raw, targets, _ = outputs(plain)
    weighed.double()
    by_target = []
    for column in range(2):
        alone = torch.full_like(targets, NAN)
        alone[:, column] = targets[:, column]
        by_target.append(plain.losses(raw, alone))
    torch.testing.assert_close(weighed.losses(raw, targets), by_target[0] + 3 * by_target[1])


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.5]])
def test_classes_have_the_weights_of_torch_s_cross_entropy(weights: list[float] | None) -> None:
    head = ClassificationHead(SIZE, SCHEMA, "graph", "kind", class_weights=weights)
    raw, classes = torch.randn(ROWS, 3), torch.randint(-1, 3, (ROWS,))
    theirs = nn.CrossEntropyLoss(
        None if weights is None else torch.tensor(weights), ignore_index=-1, reduction="none"
    )
    torch.testing.assert_close(head.losses(raw, classes), theirs(raw, classes))
    assert "class_weight" not in head.state_dict()


def test_yes_and_no_have_the_weights_of_torch_s_binary_cross_entropy() -> None:
    schema = Schema(
        types=SCHEMA.types,
        graph_targets=(Column("t", "int64", size=2), Column("u", "int64", size=2)),
    )
    head = MultiLabelHead(
        SIZE, schema, target_weights={"u": 2}, class_weights={"t": [1, 4], "u": [1, 3]}
    )
    raw, targets = torch.randn(ROWS, 2), torch.randint(0, 2, (ROWS, 2)).float()
    holes = torch.zeros_like(targets, dtype=torch.bool)
    holes[::3, 0] = True
    theirs = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([4.0, 3.0]), reduction="none")
    want = theirs(raw, targets).masked_fill(holes, 0) @ torch.tensor([1.0, 2.0]) / 2
    torch.testing.assert_close(head.losses(raw, targets.masked_fill(holes, NAN)), want)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    utils = pytest.importorskip("sklearn.utils.class_weight")
    classes = [0, 0, 0, 0, 1, 1, 2]
    builder = GraphBuilder(SCHEMA)
    for kind in (*classes, None):
        builder.output(builder.node("atom"))
        builder.finish(kind=kind)
    want = utils.compute_class_weight("balanced", classes=np.arange(3), y=classes)
    np.testing.assert_allclose(balanced_weights(builder.build())["kind"], want)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda: make(RegressionHead, loss="msa"), "no loss 'msa' here. Did you mean 'm"),
        (lambda: make(RegressionHead, loss="huber", delta=0.0), "delta=0.0 is not positive"),
        (lambda: make(QuantileHead, interval=1.0), "interval=1.0 is no share"),
        (lambda: make(EvidentialHead, evidence_penalty=-1.0), "is negative. Use 0 or more"),
        (lambda: make(RegressionHead, target_weights={"A": 1}), "names 'A', which is no target"),
        (lambda: make(RegressionHead, target_weights={"a": -1}), "a number from 0 on"),
        (lambda: make(RegressionHead, target_weights={"a": 0, "b": 0}), "gives every target 0"),
        (
            lambda: ClassificationHead(SIZE, SCHEMA, "graph", "kind", class_weights=[1, 2]),
            "Give 3 numbers from 0 on",
        ),
        (
            lambda: ClassificationHead(SIZE, SCHEMA, "graph", "kind", class_weights="even"),
            "one for each class in order, or 'balanced'",
        ),
        (
            lambda: choose_head(SCHEMA.graph_targets[:2], "graph", False, "pinball"),
            "model.head.loss is 'pinball'",
        ),
        (
            lambda: choose_head(SCHEMA.graph_targets[2:], "graph", False, "mae"),
            "is for numbers, which 'kind' are not",
        ),
    ],
)
def test_wrong_options_are_refused(head: Callable[[], Head], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        head()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        ("mae", RegressionHead),
        ("huber", RegressionHead),
        ("quantile", QuantileHead),
        ("mean_variance", MeanVarianceHead),
        ("evidential", EvidentialHead),
    ],
)
def test_a_loss_names_its_head(loss: str, wanted: type[Head]) -> None:
    assert choose_head(SCHEMA.graph_targets[:2], "graph", False, loss) is wanted
