"""Estimators for scikit-learn: its own checks, and answers that are those of graphfold itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from training.tiny_runs import undrawn

import graphfold
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.sklearn import GraphClassifier, GraphEstimator, GraphRegressor

SMILES = [chain + end for chain in ("CC", "CCC", "CCCC", "CC(C)C") for end in ("", "O", "N", "Cl")]
SIZES = [float(Chem.MolFromSmiles(smiles).GetNumAtoms()) for smiles in SMILES]
TREES = [f"(S (N film) (V is) (A {word}))" for word in ("good", "bad", "dull", "fine")] * 3
MOODS = ["+", "-", "-", "+"] * 3

#: Its checks that fit nothing: the others fit tables of numbers.
CHECKS = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
)


@pytest.fixture(autouse=True)
def _undrawn() -> Iterator[None]:
    """Reports have no pictures, which take a fifth of a tiny training."""
    with undrawn():
        yield


def small(kind: type[GraphEstimator], data: Any = "smiles", **options: Any) -> Any:
    """An estimator that is fitted in a second; its cells are not compiled, which takes longer."""
    model = {"smiles": "gcn"}.get(data)
    overrides = {"model.hidden_size": 8, "data.batch_size": 8, "model.run": "eager"}
    overrides |= options.pop("overrides", {})
    usual = {"model": model, "max_epochs": 2, "random_state": 0, "overrides": overrides}
    return kind(data, **{**usual, **options})


@cache
def regressor() -> Any:
    """One that is fitted, for tests that do not change it."""
    return small(GraphRegressor, validation_fraction=0).fit(SMILES, SIZES)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kind", [GraphRegressor, GraphClassifier])
def test_checks_of_scikit_learn(kind, check):
    getattr(estimator_checks, check)(kind.__name__, small(kind))


def test_it_is_the_training_of_graphfold(tmp_path):
    table = tmp_path / "m.csv"
    rows = "".join(f"{a},{b}\n" for a, b in zip(SMILES, SIZES, strict=True))
    table.write_text("smiles,y\n" + rows)
    model = small(GraphRegressor, folder=tmp_path / "kept").fit(SMILES, SIZES)
    options = {
        "data": "smiles",
        "model": "gcn",
        "data.path": table,
        "data.target_columns": ["y"],
        "data.fractions": [0.9, 0.1, 0.0],
        "data.cache_dir": tmp_path / "cache",
        "trainer.max_epochs": 2,
        "seed": 0,
        "logger": "none",
        **model.overrides,
    }
    run = graphfold.train(options, tmp_path / "run")
    expected = [told["prediction"] for told in run.load().predict(SMILES)]
    np.testing.assert_allclose(model.predict(SMILES), expected, rtol=1e-6)
    assert model.metrics_ == run.metrics
    kept = graphfold.load(tmp_path / "kept").predict(["CCO"])[0]["prediction"]
    assert kept == pytest.approx(float(model.predict(["CCO"])[0]))
    assert (tmp_path / "kept" / "report.html").is_file()


def test_records_may_come_in_any_container():
    model = regressor()
    expected = model.predict(SMILES)
    molecules = [Chem.MolFromSmiles(smiles) for smiles in SMILES]
    column = np.array(SMILES, dtype=object)
    for X in (
        column,
        np.array(SMILES),
        column[:, None],
        tuple(SMILES),
        pd.Series(SMILES, index=SMILES),
        pd.DataFrame({"any": SMILES}),
        molecules,
    ):
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-5)
    from_molecules = clone(model).fit(molecules, np.array(SIZES))
    np.testing.assert_allclose(from_molecules.predict(SMILES), expected, rtol=1e-5)
    assert from_molecules.random_state == 0


def test_clone_pickle_and_the_same_seed_give_the_same(tmp_path):
    model = regressor()
    expected = model.predict(SMILES)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(SMILES), expected)
    assert np.array_equal(clone(model).fit(SMILES, SIZES).predict(SMILES), expected)
    other = clone(model).set_params(random_state=1).fit(SMILES, SIZES)
    assert not np.allclose(other.predict(SMILES), expected)
    state = np.random.RandomState(0)
    two = [clone(model).set_params(random_state=state).fit(SMILES, SIZES) for _ in range(2)]
    assert not np.allclose(two[0].predict(SMILES), two[1].predict(SMILES))


def test_an_override_is_a_parameter_of_a_search(capsys):
    model = small(GraphRegressor)
    assert model.get_params()["overrides__model.hidden_size"] == 8
    assert "overrides__model.hidden_size" not in model.get_params(deep=False)
    grid = {"graphregressor__overrides__optimizer.lr": [1e-9, 0.05]}
    pipeline = make_pipeline(FunctionTransformer(list), model)
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(SMILES, SIZES)
    assert search.best_params_ == {"graphregressor__overrides__optimizer.lr": 0.05}
    fitted = search.best_estimator_[-1]
    assert fitted.overrides == {**model.overrides, "optimizer.lr": 0.05}
    assert fitted.model_.trained.config.optimizer["lr"] == 0.05
    assert "optimizer.lr" not in model.overrides
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "labels",
    [["b", "a"], [7, -1], [True, False], [np.str_("é, x"), np.str_("(")], [3, 1, 2]],
)
def test_labels_of_any_kind_are_kept(labels):
    y = [labels[i % len(labels)] for i in range(len(TREES))]
    model = small(GraphClassifier, "brackets", validation_fraction=0).fit(TREES, y)
    assert model.classes_.tolist() == sorted(labels)
    assert model.classes_.dtype == np.array(labels).dtype
    shares = model.predict_proba(TREES)
    assert shares.shape == (12, len(labels))
    np.testing.assert_allclose(shares.sum(1), 1)
    found = model.predict(TREES)
    assert found.tolist() == [model.classes_[i] for i in shares.argmax(1)]
    assert found.dtype == model.classes_.dtype


def test_trees_are_learned():
    rate = {"optimizer.lr": 0.05}
    model = small(GraphClassifier, "brackets", max_epochs=20, overrides=rate, validation_fraction=0)
    assert model.fit(TREES, MOODS).predict(TREES).tolist() == MOODS
    values = [{"+": 1.5, "-": -1.5}[mood] for mood in MOODS]
    numbers = small(
        GraphRegressor, "brackets", max_epochs=20, overrides=rate, validation_fraction=0
    )
    assert numbers.fit(TREES, values).score(TREES, values) > 0.9


def test_molecules_with_further_inputs():
    frame = pd.DataFrame({"mol": SMILES, "temperature": np.arange(16.0)})
    options = {"data.smiles_column": "mol", "data.features_from": {"graph": ["temperature"]}}
    model = small(GraphRegressor, overrides=options).fit(frame, frame.temperature)
    assert model.predict(frame).shape == (16,)
    warm = model.predict(frame.assign(temperature=100.0))
    assert not np.allclose(warm, model.predict(frame))
    with pytest.raises(DataError, match="X has the column 'y', which y needs. Rename it"):
        model.fit(frame.rename(columns={"temperature": "y"}), SIZES)


def test_intervals_are_those_of_the_model():
    model = small(GraphRegressor, validation_fraction=0.6).fit(SMILES, SIZES)
    lower, upper = model.predict_interval(SMILES)
    told = model.model_.predict(SMILES)
    assert lower.tolist() == [each["lower"] for each in told]
    assert upper.tolist() == [each["upper"] for each in told]
    assert (lower < model.predict(SMILES)).all()
    with pytest.raises(ConfigError, match="the model has no intervals. Set a larger validation_f"):
        regressor().predict_interval(SMILES)


def test_weights_say_how_much_a_record_counts():
    options = {"max_epochs": 80, "overrides": {"optimizer.lr": 0.02}, "validation_fraction": 0}
    X, y = ["CCO"] * 8, [0.0, 10.0] * 4
    even = small(GraphRegressor, **options).fit(X, y).predict(["CCO"])
    uneven = small(GraphRegressor, **options).fit(X, y, [9.0, 1.0] * 4).predict(["CCO"])
    assert even[0] == pytest.approx(5, abs=0.5)
    assert uneven[0] == pytest.approx(1, abs=0.5)  # the weighted mean
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[8, 8, 7\]"):
        small(GraphRegressor).fit(X, y, [1.0] * 7)


def test_a_bad_record_is_named_by_its_position():
    with pytest.raises(RecordError, match=r"^X\[2\]: RDKit cannot read SMILES 'C1CC'"):
        small(GraphRegressor).fit([*SMILES[:2], "C1CC", *SMILES], range(19))
    with pytest.raises(RecordError, match=r"^X\[1\]: RDKit cannot read SMILES 'C1CC'"):
        regressor().predict(["C", "C1CC"])
    with pytest.raises(RecordError, match=r"^X\[1\]: RDKit cannot read SMILES '5'"):
        small(GraphRegressor).fit(["C", 5], [1, 2])
    trees = [*TREES[:4], "(S (A x)"]
    with pytest.raises(RecordError, match=r"^X\[4\]: bracket opened at column 1 is never closed"):
        small(GraphClassifier, "brackets").fit(trees, MOODS[:5])
    skipping = small(GraphRegressor, overrides={"data.on_error": "skip"})
    assert skipping.fit([*SMILES, "C1CC"], range(17)).predict(["C"]).shape == (1,)


@pytest.mark.parametrize(
    ("kind", "options", "X", "y", "message"),
    [
        (GraphRegressor, {}, SMILES, [np.nan] * 16, "Input y contains NaN"),
        (GraphClassifier, {}, SMILES, ["a", np.nan] * 8, "Input y contains NaN"),
        (GraphClassifier, {}, SMILES, ["a"] * 16, "y has only one class. Give two"),
        (GraphClassifier, {}, SMILES, np.arange(16) / 3, "Unknown label type: continuous"),
        (GraphRegressor, {}, SMILES, None, "requires y to be passed"),
        (GraphRegressor, {}, SMILES, SIZES[:3], r"inconsistent numbers of samples: \[16, 3\]"),
        (GraphRegressor, {}, "CCO", [1], r"has the shape \[\], but it holds one record in a row"),
        (GraphRegressor, {}, np.zeros((16, 2)), SIZES, r"has the shape \[16, 2\], but it holds"),
        (GraphRegressor, {"data": "sdf"}, SMILES, SIZES, "there is no data 'sdf'. Use one of smi"),
        (GraphRegressor, {"model": "gnc"}, SMILES, SIZES, "no model 'gnc'. Did you mean"),
        (GraphRegressor, {"overrides": {"lr": 1}}, SMILES, SIZES, "no key 'lr' in the config"),
        (GraphRegressor, {"validation_fraction": 1.5}, SMILES, SIZES, "fractions"),
    ],
)
def test_wrong_use_is_refused(kind, options, X, y, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(X, y)  # type: ignore[attr-defined]
