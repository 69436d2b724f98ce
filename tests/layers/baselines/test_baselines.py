"""Fitted models: several targets with holes, classes, constants, members and refusals."""

from __future__ import annotations

import builtins
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from layers.baselines.input_graphs import graphs, inputs_of, predict, schema
from scipy.sparse import csc_matrix
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from graphfold.dag import Column, NodeType, Schema
from graphfold.errors import ConfigError
from graphfold.layers import (
    BoostingModel,
    ClassificationHead,
    CommitteeModel,
    ForestModel,
    KernelModel,
    MultiLabelHead,
    RegressionHead,
    RelatednessHead,
)
from graphfold.layers.baselines.kernel import RIDGES, KernelMachine, min_max
from graphfold.layers.baselines.trees import as_sparse

FOREST = partial(ForestModel, num_trees=10, max_features=1.0)
BOOSTING = partial(BoostingModel, num_rounds=8)
RNG = np.random.default_rng(1)
NUMBERS = RNG.normal(5, 2, 60).tolist()
HOLES = [None if number % 3 == 0 else float(number) for number in range(60)]
TWO = schema(Column("a"), Column("b"))
SCALERS = {"a": (5.0, 2.0), "b": (30.0, 17.0)}


def fitted(make: Any, of: Schema, dag: Any, head: Any, **options: Any) -> Any:
    model = make(of, head=head, **options)
    torch.manual_seed(3)
    model.fit(dag)
    return model


@pytest.mark.parametrize(
    ("make", "theirs"),
    [
        (FOREST, lambda seed: RandomForestRegressor(10, max_features=1.0, random_state=seed)),
        (
            BOOSTING,
            lambda seed: HistGradientBoostingRegressor(
                max_iter=8,
                learning_rate=0.05,
                max_leaf_nodes=15,
                min_samples_leaf=5,
                l2_regularization=1.0,
                max_features=0.3,
                early_stopping=False,
                random_state=seed,
            ),
        ),
    ],
)
def test_each_target_is_fitted_where_it_is_measured(make: Any, theirs: Any) -> None:
    dag = graphs(TWO, 60, {"a": NUMBERS, "b": HOLES})
    got = predict(fitted(make, TWO, dag, RegressionHead, scalers=SCALERS), dag)
    x = inputs_of(dag)
    torch.manual_seed(3)
    seeds = [int(torch.randint(2**31 - 1, ())) for _ in range(2)]
    for column, (values, (mean, std)) in enumerate(
        zip((NUMBERS, HOLES), SCALERS.values(), strict=True)
    ):
        known = [number for number, value in enumerate(values) if value is not None]
        y = (torch.tensor([values[number] for number in known]) - mean) / std
        want = theirs(seeds[column]).fit(x[known], y.numpy()).predict(x) * std + mean
        np.testing.assert_allclose(got[:, column].numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [FOREST, BOOSTING, partial(ForestModel, num_trees=5, extra=True)])
def test_assays_with_holes(make: Any) -> None:
    assays = schema(Column("x", "int64", size=2), Column("y", "int64", size=2))
    dag = graphs(
        assays,
        60,
        {"x": [n % 2 for n in range(60)], "y": [1 if n > 9 else None for n in range(60)]},
    )
    model = fitted(make, assays, dag, MultiLabelHead)
    probabilities = predict(model, dag)
    assert probabilities.shape == (60, 2)
    assert ((probabilities[:, 0] > 0.5).long() == dag.graph_column("x")).float().mean() > 0.6
    assert (probabilities[:, 1] > 0.999).all()  # no other class occurs
    losses = model.head.losses(model(model.plan(dag)), model.head.target_rows(dag))
    assert losses.isfinite().all()


@pytest.mark.parametrize("make", [FOREST, BOOSTING])
def test_one_of_several_classes(make: Any) -> None:
    kinds = schema(Column("kind", "int64", size=4))
    classes = [None if n == 5 else (0, 1, 3)[n % 3] for n in range(60)]
    dag = graphs(kinds, 60, {"kind": classes})
    model = fitted(make, kinds, dag, ClassificationHead)
    probabilities = predict(model, dag)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(60))
    assert probabilities[:, 2].max() < 1e-5
    known = dag.graph_column("kind") >= 0
    assert (probabilities.argmax(1) == dag.graph_column("kind"))[known].float().mean() > 0.6


@pytest.mark.parametrize("make", [FOREST, BOOSTING, KernelModel])
def test_a_target_that_nobody_measured_is_its_mean_with_a_warning(make: Any) -> None:
    dag = graphs(TWO, 60, {"a": NUMBERS, "b": [None] * 60})
    with pytest.warns(UserWarning, match=r"'b' is measured nowhere in the training part, so"):
        model = fitted(make, TWO, dag, RegressionHead, scalers=SCALERS)
    assert predict(model, dag)[:, 1].tolist() == [30.0] * 60


@pytest.mark.parametrize("make", [FOREST, BOOSTING, KernelModel])
def test_the_same_seed_gives_the_same_bits_and_so_does_a_stored_state(make: Any) -> None:
    dag = graphs(TWO, 60, {"a": NUMBERS, "b": HOLES})
    one, two = (fitted(make, TWO, dag, RegressionHead, scalers=SCALERS) for _ in range(2))
    assert torch.equal(predict(one, dag), predict(two, dag))
    loaded = make(TWO, head=RegressionHead, scalers=SCALERS)
    loaded.load_state_dict(one.state_dict())
    assert torch.equal(predict(loaded, dag), predict(one, dag))
    assert not list(one.parameters())


# Kernels


def test_min_max_is_its_formula() -> None:
    a, b = torch.randint(0, 6, (7, 9)).float(), torch.randint(0, 6, (4, 9)).float()
    a[0] = b[0] = 0
    least = torch.minimum(a[:, None], b[None]).sum(2)
    most = torch.maximum(a[:, None], b[None]).sum(2)
    want = torch.where(most > 0, least / most, 1.0)
    torch.testing.assert_close(min_max(a, b), want)


def test_a_kernel_machine_is_a_gaussian_process() -> None:
    x, y = RNG.normal(size=(40, 3)).astype(np.float32), RNG.normal(size=40)
    machine = KernelMachine([(slice(0, 3), False)])
    machine.fit(torch.from_numpy(x), torch.from_numpy(y))
    new = RNG.normal(size=(5, 3)).astype(np.float32)
    kernel = ConstantKernel(1.0, "fixed") * RBF(np.sqrt(1.5), "fixed")  # exp(-d² / 3)
    centred = y - y.mean()
    guesses, errors = [], []
    for ridge in RIDGES:
        process = GaussianProcessRegressor(kernel, alpha=ridge, optimizer=None)
        held = [
            process.fit(np.delete(x, i, 0), np.delete(centred, i)).predict(x[i : i + 1])[0]
            for i in range(40)
        ]
        errors.append(np.square(centred - held).mean())
        guesses.append(process.fit(x, centred).predict(new) + y.mean())
    got = machine(torch.from_numpy(new))[:, 0].numpy()
    np.testing.assert_allclose(got, guesses[int(np.argmin(errors))], rtol=1e-4, atol=1e-4)


def test_a_kernel_refuses_classes_and_too_many_records() -> None:
    assays = schema(Column("x", "int64", size=2))
    with pytest.raises(ConfigError, match=r"predicts numbers, but .* MultiLabelHead\. Use"):
        KernelModel(assays, head=MultiLabelHead)
    dag = graphs(TWO, 60, {"a": NUMBERS, "b": HOLES})
    model = KernelModel(TWO, head=RegressionHead, most_records=50)
    with pytest.raises(ConfigError, match=r"compare 60 training records .* 50 are the most"):
        model.fit(dag)


# Committees


def test_a_committee_says_the_mean_of_its_members() -> None:
    dag = graphs(TWO, 60, {"a": NUMBERS, "b": HOLES})
    committee = partial(CommitteeModel, members=[FOREST, KernelModel])
    model = fitted(committee, TWO, dag, RegressionHead, scalers=SCALERS)
    alone = [make(TWO, head=RegressionHead, scalers=SCALERS) for make in (FOREST, KernelModel)]
    torch.manual_seed(3)
    for member in alone:
        member.fit(dag)
    want = (predict(alone[0], dag) + predict(alone[1], dag)) / 2
    torch.testing.assert_close(predict(model, dag), want)


def test_a_committee_needs_members_that_are_fitted() -> None:
    with pytest.raises(ConfigError, match=r"a committee has no members\. Set model\.members"):
        CommitteeModel(TWO, [], head=RegressionHead)
    with pytest.raises(ConfigError, match=r"model\.members\[0\] is a Linear\. Give a FittedModel"):
        CommitteeModel(TWO, [torch.nn.Linear(1, 1)], head=RegressionHead)  # type: ignore[list-item]


# Refusals


def test_graphs_without_numbers() -> None:
    bare = Schema(types=(NodeType("atom", 0),), graph_targets=(Column("a"),))
    with pytest.raises(ConfigError, match=r"ForestModel reads numbers .* data\.descriptors=\[morg"):
        ForestModel(bare, head=RegressionHead)


def test_another_head() -> None:
    with pytest.raises(ConfigError, match=r"ForestModel cannot have the head RelatednessHead"):
        ForestModel(schema(Column("a")), head=partial(RelatednessHead))


def test_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError("No module named 'sklearn'")
        return real(name, *args, **kwargs)

    dag = graphs(TWO, 60, {"a": NUMBERS, "b": HOLES})
    monkeypatch.setattr(builtins, "__import__", without)
    for make, name in ((FOREST, "forest"), (BOOSTING, "boosting")):
        message = rf"model={name} is fitted by scikit-learn.*pip install 'graphfold\[baselines\]'"
        with pytest.raises(ConfigError, match=message):
            fitted(make, TWO, dag, RegressionHead, scalers=SCALERS)


@pytest.mark.parametrize("kind", [RandomForestRegressor, ExtraTreesRegressor])
def test_without_zeros_a_forest_has_the_same_trees(kind: Any) -> None:
    dense = RNG.poisson(0.03, (200, 90)).astype(np.float32)
    target = dense[:, :5].sum(1) + RNG.normal(0, 0.1, 200)
    sparse = as_sparse(dense)
    assert isinstance(sparse, csc_matrix)
    trees = [kind(5, max_features=0.3, random_state=7).fit(x, target) for x in (dense, sparse)]
    for one, other in zip(*(forest.estimators_ for forest in trees), strict=True):
        assert one.tree_.feature.tolist() == other.tree_.feature.tolist()
        assert one.tree_.threshold.tolist() == other.tree_.threshold.tolist()
        np.testing.assert_allclose(one.tree_.value, other.tree_.value, rtol=1e-12)


def test_many_columns_that_are_hardly_zero_stay_as_they_are() -> None:
    dense = RNG.normal(size=(20, 4)).astype(np.float32)
    assert as_sparse(dense) is dense
