"""BoostingModel: gradient boosting on the inputs of whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphfold.dag import Schema
from graphfold.layers.baselines.target_model import (
    TargetModel,
    draw_seed,
    import_ensemble,
    repeated,
)
from graphfold.layers.baselines.tree_ensemble import Tree, TreeEnsemble
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.regression import RegressionHead

#: The logit of a class that alone occurs in the training part, or does not.
CERTAIN = 16.0


class BoostingModel(TargetModel):
    """Gradient boosting over binned inputs (Ke et al. 2017, LightGBM), one model per target.

    scikit-learn fits it (`HistGradientBoosting`); the trees are kept as tensors. Numbers are fitted
    by squared error, classes by cross entropy.

    Args:
        schema: the schema of the graphs.
        head: makes the `Head`.
        scalers: target name -> (mean, standard deviation) of the training part.
        num_rounds: how many trees are fitted one after another (of classes, as many for each).
        learning_rate: the share of each tree that is added.
        max_leaves: the most leaves of a tree.
        min_samples_leaf: the fewest records in a leaf.
        l2: the weight of the squared values of the leaves.
        max_features: the share of the inputs among which each node of a tree chooses.

    Raises:
        ConfigError: as `FittedModel`; from `fit`, if scikit-learn is absent or refuses an option.
    """

    def __init__(
        self,
        schema: Schema,
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
        num_rounds: int = 300,
        learning_rate: float = 0.05,
        max_leaves: int = 15,
        min_samples_leaf: int = 5,
        l2: float = 1.0,
        max_features: float = 0.3,
    ) -> None:
        super().__init__(schema, head, scalers)
        self.options: dict[str, Any] = {
            "max_iter": num_rounds,
            "learning_rate": learning_rate,
            "max_leaf_nodes": max_leaves,
            "min_samples_leaf": min_samples_leaf,
            "l2_regularization": l2,
            "max_features": max_features,
            "early_stopping": False,
        }

    def empty(self) -> TreeEnsemble:
        """Zeros: the mean, or equal probabilities."""
        return TreeEnsemble(self.num_outputs)

    def fit_target(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> TreeEnsemble:
        """The trees of a model that scikit-learn fits; a constant where there is one class."""
        if not isinstance(self.head, RegressionHead) and bool((y == y[0]).all()):
            return _constant(int(y[0]), self.num_outputs)
        x, y, weights = repeated(x, y, weights)
        columns = divisible(x.numpy(), self.options["min_samples_leaf"])
        sample_weight = None if weights is None else weights.numpy()
        boosting = self.fit_boosting(x.numpy()[:, columns], y.numpy(), sample_weight)
        return as_tensors(boosting, self.num_outputs, columns)

    def fit_boosting(
        self, x: NDArray[np.float32], y: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Any:
        """scikit-learn's own model."""
        ensemble = import_ensemble("boosting")
        kind = "Regressor" if isinstance(self.head, RegressionHead) else "Classifier"
        make = getattr(ensemble, f"HistGradientBoosting{kind}")
        return make(**self.options, random_state=draw_seed()).fit(x, y, weights)


def divisible(x: NDArray[np.float32], least: int) -> NDArray[Any]:
    """The numbers of the columns that can divide the rows into two parts of `least` rows or more.

    No tree looks at the others, which are most of the counts of substructures; to leave them out
    saves more than half of the time. A constant tree needs a column, so there is always one.
    """
    least = max(least, 1)
    if len(x) < 2 * least:
        return np.zeros(1, dtype=np.int64)
    ends = np.partition(x, [least - 1, len(x) - least], axis=0)
    found = np.flatnonzero(ends[least - 1] < ends[len(x) - least])
    return found if len(found) else np.zeros(1, dtype=np.int64)


def as_tensors(boosting: Any, num_outputs: int, inputs: NDArray[Any] | None = None) -> TreeEnsemble:
    """The trees of a fitted `HistGradientBoosting` of scikit-learn.

    Args:
        boosting: the model.
        num_outputs: 1 for numbers and for the logit of class 1, else the number of classes.
        inputs: for each column that it was fitted to, which input that is; None if it had all.
    """
    if inputs is None:
        inputs = np.arange(boosting.n_features_in_)
    classes = getattr(boosting, "classes_", None)
    if classes is None or num_outputs == 1:
        columns = [0]
    elif len(classes) == 2:  # a logit of the second one, as if that of the first were 0
        columns = [int(classes[1])]
    else:
        columns = [int(name) for name in classes]
    base = np.full(num_outputs, -CERTAIN)
    if classes is not None and num_outputs > 1:
        base[classes.astype(int)] = 0.0
    base[columns] = boosting._baseline_prediction.reshape(-1)
    trees = [
        _tree(predictor.nodes, column, num_outputs, inputs)
        for stage in boosting._predictors
        for column, predictor in zip(columns, stage, strict=True)
    ]
    return TreeEnsemble(num_outputs, trees, base=base.tolist())


def _tree(nodes: NDArray[Any], column: int, num_outputs: int, inputs: NDArray[Any]) -> Tree:
    is_leaf = nodes["is_leaf"].astype(bool)
    value = np.zeros((len(nodes), num_outputs))
    value[:, column] = nodes["value"]
    feature = np.where(is_leaf, -1, inputs[nodes["feature_idx"]])
    return Tree(feature, nodes["num_threshold"], nodes["left"], nodes["right"], value)


def _constant(only: int, num_outputs: int) -> TreeEnsemble:
    """The class `only` with near certainty."""
    base = [CERTAIN if number == only else -CERTAIN for number in range(num_outputs)]
    if num_outputs == 1:
        base = [CERTAIN if only else -CERTAIN]
    return TreeEnsemble(num_outputs, base=base)
