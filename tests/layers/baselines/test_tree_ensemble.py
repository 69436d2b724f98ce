"""Trees as tensors against scikit-learn's own predictions."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from graphfold.layers.baselines import trees
from graphfold.layers.baselines.trees import Tree, TreeEnsemble

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 4, (300, 8)).astype(np.float32)
X = np.concatenate([COUNTS, RNG.normal(size=(300, 4)).astype(np.float32)], axis=1)
Y = X[:, 0] * X[:, 9] + X[:, 3] + RNG.normal(size=300)
CLASSES = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
NEW = torch.from_numpy(np.concatenate([X[:50] + 0.25, X[50:80]]))


@pytest.mark.parametrize("kind", [RandomForestRegressor, ExtraTreesRegressor])
@pytest.mark.parametrize("options", [{}, {"max_depth": 1}, {"min_samples_leaf": 20}])
def test_a_forest_of_numbers(kind: Any, options: dict[str, int]) -> None:
    fitted = kind(30, random_state=0, **options).fit(X, Y)
    got = trees.as_tensors(fitted, 1)(NEW)
    np.testing.assert_allclose(got[:, 0].numpy(), fitted.predict(NEW.numpy()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("y", "num_outputs"), [(CLASSES, 3), (CLASSES, 5), (CLASSES == 1, 1)])
def test_a_forest_of_classes(y: np.ndarray, num_outputs: int) -> None:
    fitted = RandomForestClassifier(30, random_state=0).fit(X, y.astype(int))
    want = fitted.predict_proba(NEW.numpy())
    want = want[:, 1:] if num_outputs == 1 else np.pad(want, ((0, 0), (0, num_outputs - 3)))
    got = trees.as_tensors(fitted, num_outputs)(NEW).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_boosting_of_numbers() -> None:
    fitted = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(X, Y)
    got = trees.boosting_tensors(fitted, 1)(NEW)[:, 0].numpy()
    np.testing.assert_allclose(got, fitted.predict(NEW.numpy()), rtol=1e-5, atol=1e-6)


def test_boosting_without_the_columns_that_cannot_be_divided() -> None:
    counts = np.zeros((len(X), 6), dtype=np.float32)
    counts[:4, 1], counts[:5, 3], counts[:-5, 4], counts[:-4, 5] = 1, 2, 3, 4
    assert trees.divisible(counts, 5).tolist() == [3, 4]
    assert trees.divisible(counts[:9], 5).tolist() == [0]  # too few rows for any
    assert trees.divisible(counts[:, :1], 5).tolist() == [0]
    wide = np.concatenate([counts, X], axis=1)
    columns = trees.divisible(wide, 5)
    options = {"max_iter": 5, "min_samples_leaf": 5, "random_state": 0}
    everything = HistGradientBoostingRegressor(**options).fit(wide, Y).predict(wide)
    fitted = HistGradientBoostingRegressor(**options).fit(wide[:, columns], Y)
    got = trees.boosting_tensors(fitted, 1, columns)(torch.from_numpy(wide))[:, 0].numpy()
    np.testing.assert_allclose(got, everything, rtol=1e-5, atol=1e-6)


def test_boosting_of_two_classes() -> None:
    fitted = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X, CLASSES == 1)
    got = torch.sigmoid(trees.boosting_tensors(fitted, 1)(NEW))[:, 0].numpy()
    np.testing.assert_allclose(got, fitted.predict_proba(NEW.numpy())[:, 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2, 3), (1, 3)])
def test_boosting_of_several_classes_some_of_which_do_not_occur(classes: tuple[int, ...]) -> None:
    y = np.array(classes)[CLASSES % len(classes)]
    fitted = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(X, y)
    got = torch.softmax(trees.boosting_tensors(fitted, 4)(NEW), dim=1).numpy()
    np.testing.assert_allclose(
        got[:, list(classes)], fitted.predict_proba(NEW.numpy()), rtol=1e-5, atol=1e-5
    )
    others = [number for number in range(4) if number not in classes]
    assert got[:, others].max() < 1e-4


def test_rows_in_parts_are_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = trees.as_tensors(RandomForestRegressor(7, random_state=0).fit(X, Y), 1)
    want = ensemble(NEW)
    monkeypatch.setattr(trees, "PAIRS_AT_ONCE", 20)
    assert torch.equal(ensemble(NEW), want)
    assert ensemble(NEW[:0]).shape == (0, 1)
    torch.testing.assert_close(ensemble.each(NEW).mean(1), want)


@pytest.mark.parametrize("single", [0.1, -0.1, 1e30, -1e30, 1.0])
def test_a_threshold_between_two_single_numbers_parts_them(single: float) -> None:
    below = np.float32(single)
    above = np.nextafter(below, np.float32(np.inf))
    for threshold in (float(below), (float(below) + float(above)) / 2):
        stump = Tree(
            np.array([0, -1, -1]),
            np.array([threshold, 0, 0]),
            np.array([1, -1, -1]),
            np.array([2, -1, -1]),
            np.array([[0.0], [1.0], [2.0]]),
        )
        ensemble = TreeEnsemble(1, [stump], base=[10.0])
        assert ensemble(torch.tensor([[below], [above]])).tolist() == [[11.0], [12.0]]


def test_a_state_is_plain_tensors_and_brings_its_sizes() -> None:
    ensemble = trees.as_tensors(RandomForestRegressor(3, random_state=0).fit(X, Y), 1)
    file = io.BytesIO()
    torch.save(ensemble.state_dict(), file)
    file.seek(0)
    loaded = TreeEnsemble(1)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loaded(NEW), ensemble(NEW))
    assert repr(loaded).startswith("TreeEnsemble(3 trees, ")


def test_without_trees_it_is_constant() -> None:
    assert TreeEnsemble(2, base=[1.0, 2.0])(NEW[:2]).tolist() == [[1.0, 2.0]] * 2


@pytest.mark.parametrize(
    ("name", "value"), [("left", [0, 0, 0]), ("right", [9, 0, 0]), ("root", [-1]), ("left", [1])]
)
def test_stored_trees_that_never_end_are_refused(name: str, value: list[int]) -> None:
    node = np.array([0, -1, -1]), np.zeros(3), np.array([1, 0, 0]), np.array([2, 0, 0])
    state = TreeEnsemble(1, [Tree(*node, np.ones((3, 1)))]).state_dict()
    TreeEnsemble(1).load_state_dict(state)
    with pytest.raises(RuntimeError, match="do not end in leaves"):
        TreeEnsemble(1).load_state_dict({**state, name: torch.tensor(value, dtype=torch.int32)})
