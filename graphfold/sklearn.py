"""Estimators of scikit-learn over molecules and trees.

`fit` writes records and values into a table and calls `graphfold.train`, so a config says the same
here as there; `predict` is that of the trained model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
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

#: The column of the records in the table that `fit` writes, unless an override names another.
_RECORD = {"smiles": "smiles", "brackets": "record"}

#: One training at a time: reading a config, and keeping quiet, are settings of the whole process.
_TRAINING = Lock()

_OVERRIDE = "overrides__"


class GraphEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Parameters and methods that `GraphRegressor` and `GraphClassifier` share.

    Args:
        data: the kind of records: "smiles" (SMILES, or molecules of RDKit) or "brackets" (trees in
            brackets). Records with further columns (`features_from`) are rows of a DataFrame.
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
        own = self.overrides if deep and isinstance(self.overrides, Mapping) else {}
        return {**super().get_params(deep), **{_OVERRIDE + key: own[key] for key in own}}

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
        records, values = self._columns(X), dict(y)
        if weight is not None:
            values["sample_weight"] = np.asarray(weight, dtype=np.float64)
        check_consistent_length(*records.values(), *values.values())
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
        columns = self._columns(X)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        records = rows if len(columns) > 1 else next(iter(columns.values()))
        answers: list[dict[str, Any]] = self.model_.predict(records)
        for position, answer in enumerate(answers):
            if answer["reason"]:
                raise _of_record(position, answer["reason"])
        return answers

    def _columns(self, X: Any) -> dict[str, list[Any]]:
        """The columns of a DataFrame; of anything else its records, as text."""
        if self.data not in _CONFIGS:
            raise ConfigError(f"there is no data '{self.data}'. Use one of {', '.join(_CONFIGS)}.")
        name = (self.overrides or {}).get("data.smiles_column", _RECORD[self.data])
        if hasattr(X, "columns") and len(X.columns) > 1:
            columns = {str(key): X[key].tolist() for key in X.columns}
        else:
            array = np.asarray(X, dtype=object)
            if array.ndim == 2 and array.shape[1] == 1:
                array = array[:, 0]
            if array.ndim != 1 or not len(array):
                raise DataError(
                    f"X has the shape {list(array.shape)}, but it holds one record in a row. Give "
                    "a list or a column with a record or more, or a DataFrame."
                )
            columns = {name: array.tolist()}
        if name in columns:
            columns[name] = [_text(record) for record in columns[name]]
        return columns


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
        _require(self, y)
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
        _require(self, y)
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
        labels: np.ndarray = self.classes_[self.predict_proba(X).argmax(axis=1)]
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
    """A context without the output of training and its warnings of undefined metrics."""
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        yield


def _require(estimator: GraphEstimator, y: Any) -> None:
    """Refuses missing targets, which would be the text "nan" among labels."""
    if y is None:
        name = type(estimator).__name__
        raise DataError(f"{name} requires y to be passed, but the target y is None. Give it.")
    if any(str(value) in ("nan", "None", "<NA>") for value in np.ravel(np.asarray(y, object))):
        raise DataError("Input y contains NaN or None. Leave out records without a target.")


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))


def _text(record: Any) -> str:
    """A record as text; a molecule of RDKit as SMILES."""
    if hasattr(record, "GetAtoms"):
        record = make_adapter("smiles").record_of(record).content.text
    return str(record)


def _of_record(position: int, fault: str) -> RecordError:
    """The error of a record, by its position."""
    return RecordError(fault, "Correct the record, or leave it out.", path=f"X[{position}]")
