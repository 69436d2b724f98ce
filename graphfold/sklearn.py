"""Estimators of scikit-learn over molecules and trees.

`fit` writes records and values into a table and calls `graphfold.train`, so a config says the same
here as there; `predict` is that of the trained model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Literal

import numpy as np
import pyarrow
from pyarrow import parquet

from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.inference.frames import read_frame, read_list
from graphfold.recipe import train
from graphfold.training.scoring import UndefinedMetricWarning

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import (
        check_array,
        check_consistent_length,
        check_random_state,
        column_or_1d,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError(
        f"graphfold.sklearn needs scikit-learn 1.6 or newer ({error}). Install it: "
        "pip install 'graphfold[sklearn]'"
    ) from error

#: What a config says of each kind of records.
_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "smiles": {"data": "smiles"},
    "brackets": {
        "data": "table",
        "model": "binary_tree_lstm",
        "data.records": "brackets",
        "data.options": {"binarize": True},
    },
}

#: One training at a time: reading a config, and keeping quiet, are settings of the whole process.
_TRAINING = Lock()

_OVERRIDE = "overrides__"


class GraphEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Parameters and methods that `GraphRegressor` and `GraphClassifier` share.

    Args:
        data: the kind of records: "smiles" (SMILES, or molecules of RDKit) or "brackets" (trees in
            brackets). Molecules with further inputs (`extra_columns`) are rows of a DataFrame.
        model: the name of a config of the group `model`; None for what suits the data.
        max_epochs: how often all records are gone through; None for the number in the config.
        validation_fraction: the share of the records that chooses the best epoch and calibrates;
            0 takes the last epoch, and calibrates nothing.
        overrides: further overrides of the config, as `graphfold.train` takes them, such as
            `{"optimizer.lr": 3e-4, "ensemble": 5}`; they come last. In a search, the parameter
            `overrides__optimizer.lr` is one of them.
        random_state: `seed` of the config, of weights, order and validation part: a number, or a
            `RandomState` that one is drawn from; None for another one in every `fit`.
        folder: the run folder, which is kept: checkpoints, curves, report. None for none.
        verbose: whether training prints what `graphfold train` prints.

    Attributes:
        model_: the trained model, as `graphfold.load` gives it; it can `embed` and `draw`, too.
        metrics_: the metrics of the best epoch on the validation part; None where one is undefined.
    """

    def __init__(
        self,
        data: Literal["smiles", "brackets"] = "smiles",
        model: str | None = None,
        max_epochs: int | None = None,
        validation_fraction: float = 0.1,
        overrides: Mapping[str, Any] | None = None,
        random_state: Any = None,
        folder: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.data = data
        self.model = model
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.overrides = overrides
        self.random_state = random_state
        self.folder = folder
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep`, each override, too."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.overrides, Mapping):
            params |= {_OVERRIDE + key: value for key, value in self.overrides.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Sets parameters; `overrides__KEY` sets one override and leaves the others."""
        super().set_params(**{k: v for k, v in params.items() if not k.startswith(_OVERRIDE)})
        more = {k.removeprefix(_OVERRIDE): v for k, v in params.items() if k.startswith(_OVERRIDE)}
        if more:
            self.overrides = {**(self.overrides or {}), **more}
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = isinstance(self, RegressorMixin)
        return tags

    def _fit(self, X: Any, y: Mapping[str, Any], weight: Any, task: Mapping[str, Any]) -> None:
        """Trains on records and values, name -> [num_records]; `task`: their keys of the config."""
        if not isinstance(self.overrides, Mapping | None):
            raise ConfigError(
                f"overrides is {self.overrides!r}. Give a mapping, such as {{'ensemble': 5}}."
            )
        rows = self._rows(X)
        values = dict(y)
        if weight is not None:
            values["sample_weight"] = _weights(weight)
        check_consistent_length(rows, *values.values())
        if self.validation_fraction and len(rows) < 2:
            raise DataError(
                f"{type(self).__name__} learns from two records or more, one of them to choose the "
                f"epoch by, but n_samples = {len(rows)}. Give more, or set validation_fraction=0."
            )
        records = self._cells(rows)
        twice = sorted({*values} & {*records})
        if twice:
            raise DataError(f"X has the column '{twice[0]}', which y needs. Rename it.")
        with TemporaryDirectory() as name:
            table = Path(name) / "X.parquet"
            parquet.write_table(pyarrow.table({**records, **values}), table)
            config = {
                **_CONFIGS[self.data],
                "data.path": table,
                "data.cache_dir": Path(name) / "cache",
                "data.target_columns": [*y],
                **{f"data.{key}": value for key, value in task.items()},
                "data.weight_column": None if weight is None else "sample_weight",
                "data.fractions": [1 - self.validation_fraction, self.validation_fraction, 0.0],
                "logger": "none",
                "seed": _seed(self.random_state),
            }
            chosen = {"model": self.model, "trainer.max_epochs": self.max_epochs}
            config |= {key: value for key, value in chosen.items() if value is not None}
            folder = Path(name) / "run" if self.folder is None else self.folder
            try:
                with _TRAINING, nullcontext() if self.verbose else _quiet():
                    run = train({**config, **(self.overrides or {})}, folder)
            except RecordError as error:
                if error.path != str(table) or error.line is None:
                    raise
                raise _of_record(error.line - 2, error.fault) from error  # names are line 1
            self.model_, self.metrics_ = run.load(), dict(run.metrics)

    def _predict(self, X: Any) -> list[dict[str, Any]]:
        """The answers of the model; raises RecordError for a record that cannot be read."""
        check_is_fitted(self)
        answers: list[dict[str, Any]] = self.model_.predict(self._rows(X))
        for position, answer in enumerate(answers):
            if answer["reason"]:
                raise _of_record(position, answer["reason"])
        return answers

    def _rows(self, X: Any) -> list[Any]:
        """The records, each as a model takes it."""
        if self.data not in _CONFIGS:
            raise ConfigError(f"there is no data '{self.data}'. Use one of {', '.join(_CONFIGS)}.")
        if hasattr(X, "toarray"):
            raise DataError("a sparse matrix holds no records. Give X.toarray(), or a list.")
        if hasattr(X, "__array__") and not hasattr(X, "columns") and not hasattr(X, "to_list"):
            X = np.asarray(X)
        if isinstance(X, np.ndarray) and (X.ndim != 1 or X.dtype.kind in "biufc"):
            if X.shape[1:] != (1,):
                raise DataError(
                    f"an array of {self.data} holds one record in a row, but this one has the "
                    f"shape {X.shape}. Give a column, or a DataFrame."
                )
            X = X[:, 0].tolist()
        frame = read_frame(X, "fit")
        if frame is None:
            rows = list(read_list(X, "fit"))
        else:
            rows = list(frame.items([*frame.names] if len(frame.names) == 1 else None))
        if not rows:
            raise DataError("X has no record: 0 sample(s), while at least 1 is needed. Give some.")
        return rows

    def _cells(self, rows: Sequence[Any]) -> dict[str, list[Any]]:
        """The columns of the table that `fit` writes: records, and what is read beside them."""
        if self.data == "brackets":
            return {"record": _each(rows, lambda row: row)}
        read = make_adapter("smiles").record_of
        name = (self.overrides or {}).get("data.smiles_column", "smiles")
        columns: dict[str, list[Any]] = {}
        if isinstance(rows[0], Mapping):
            columns = {str(key): [row.get(key) for row in rows] for key in rows[0]}
        molecules = columns.get(name, rows)
        return {**columns, name: _each(molecules, lambda item: read(item).content.text)}


class GraphRegressor(RegressorMixin, GraphEstimator):  # type: ignore[misc]
    """Numbers of molecules or trees, learned by a neural network.

    Its parameters and attributes are those of `GraphEstimator`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GraphRegressor:
        """Trains on records and their values.

        Args:
            X: [num_records] the records.
            y: [num_records] or [num_records, num_targets] finite numbers.
            sample_weight: [num_records] for how many records each of them counts.

        Raises:
            GraphfoldError: if a record cannot be read, or a parameter cannot be used.
        """
        _require_y(self, y)
        values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        self._is_column = values.ndim == 1
        table = values.reshape(len(values), -1)
        names = ["y"] if table.shape[1] == 1 else [f"y{n}" for n in range(table.shape[1])]
        targets = dict(zip(names, table.T, strict=True))
        self._fit(X, targets, sample_weight, {"task": "regression"})
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predictions: [num_records], or [num_records, num_targets] where `y` had columns.

        Raises:
            RecordError: for the first record that cannot be read.
        """
        return self._numbers(self._predict(X), "prediction")

    def predict_interval(self, X: Any) -> np.ndarray:
        """[2, ...] the lower and the upper ends of intervals about what `predict` gives.

        They hold the true value with the probability `calibration.level` of the config, 0.9.

        Raises:
            RecordError: for the first record that cannot be read.
            ConfigError: if the model has no intervals, such as for want of validation records.
        """
        answers = self._predict(X)
        if "lower" not in answers[0]:
            raise ConfigError(
                "the model has no intervals. Set a larger validation_fraction, or override "
                "calibration.method or calibration.level."
            )
        return np.stack([self._numbers(answers, end) for end in ("lower", "upper")])

    def _numbers(self, answers: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
        """A number of each record, or of each of its targets."""
        values = [answer[name] for answer in answers]
        rows = [[*value.values()] if isinstance(value, Mapping) else [value] for value in values]
        numbers = np.array(rows, dtype=np.float64)
        return numbers[:, 0] if self._is_column else numbers


class GraphClassifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """Classes of molecules or trees, learned by a neural network.

    Its parameters and attributes are those of `GraphEstimator`.

    Attributes:
        classes_: [num_classes] the labels, sorted, of the kind that `y` had.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GraphClassifier:
        """Trains on records and their labels.

        Args:
            X: [num_records] the records.
            y: [num_records] labels of one kind: numbers, strings, booleans.
            sample_weight: [num_records] for how many records each of them counts.

        Raises:
            GraphfoldError: if a record cannot be read, or a parameter cannot be used.
        """
        _require_y(self, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("y has only one class. Give two or more.")
        counts = {"num_classes": len(self.classes_), "split": "stratified"}
        self._fit(X, {"y": codes}, sample_weight, {"task": "classification", **counts})
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[num_records] the likeliest label of each record.

        Raises:
            RecordError: for the first record that cannot be read.
        """
        likeliest = self.predict_proba(X).argmax(axis=1)
        labels: np.ndarray = self.classes_[likeliest]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """[num_records, num_classes] the probability of each label, in the order of `classes_`.

        Raises:
            RecordError: for the first record that cannot be read.
        """
        rows = [[*answer["probabilities"].values()] for answer in self._predict(X)]
        numbers = np.array(rows, dtype=np.float64)
        shares: np.ndarray = numbers / numbers.sum(axis=1, keepdims=True)  # they are rounded
        return shares


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what training prints, and what it says of metrics that are None in `metrics_`."""
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        yield


def _require_y(estimator: GraphEstimator, y: Any) -> None:
    """Refuses missing targets, which would be the text "nan" among labels."""
    if y is None:
        name = type(estimator).__name__
        raise DataError(f"{name} requires y to be passed, but the target y is None. Give it.")
    values = y.tolist() if hasattr(y, "tolist") else y
    for position, value in enumerate(values if isinstance(values, list | tuple) else ()):
        if value is None or (not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaT")):
            raise DataError(
                f"Input y contains NaN or None: y[{position}] is missing. Give the record a "
                "target, or leave it out."
            )


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))


def _weights(weight: Any) -> np.ndarray:
    """[num_records] the weights: numbers from 0 on, and not all 0."""
    name = "sample_weight"
    weights: np.ndarray = check_array(
        weight, ensure_2d=False, dtype=np.float64, input_name=name, ensure_non_negative=True
    )
    if weights.ndim != 1:
        raise DataError(f"{name} has the shape {weights.shape}. Give one number for each record.")
    if not weights.any():
        raise DataError(f"every {name} (weight) is zero, so nothing can be learnt. Leave it out.")
    return weights


def _each(items: Sequence[Any], text_of: Callable[[Any], Any]) -> list[str]:
    """The text of each item; raises RecordError for the first that has none."""
    return [_text(text_of, item, position) for position, item in enumerate(items)]


def _text(text_of: Callable[[Any], Any], item: Any, position: int) -> str:
    try:
        text = text_of(item)
    except RecordError as error:
        raise _of_record(position, error.fault) from error
    if not isinstance(text, str):
        raise _of_record(position, f"{item!r} is no record")
    return text


def _of_record(position: int, fault: str) -> RecordError:
    """The error of a record, by its position."""
    return RecordError(fault, "Correct the record, or leave it out.", path=f"X[{position}]")
