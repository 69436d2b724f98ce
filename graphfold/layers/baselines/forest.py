"""ForestModel: a random forest on the inputs of whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
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

#: Probabilities are kept so far from 0 and 1 that their logarithms are finite.
LEAST = 2.0**-23

#: The share of numbers that are not zero up to which scikit-learn is faster without the zeros.
_SPARSE = 0.05


class ForestModel(TargetModel):
    """Random forests (Breiman 2001, https://doi.org/10.1023/A:1010933404324), one per target.

    scikit-learn fits them, on as many threads as torch has; the trees are kept as tensors. A forest
    of classes says the mean of its trees' shares of each class, as scikit-learn's does.

    Args:
        schema: the schema of the graphs.
        head: makes the `Head`.
        scalers: target name -> (mean, standard deviation) of the training part.
        num_trees: how many trees a forest has.
        max_features: the share of the inputs among which each node of a tree chooses.
        min_samples_leaf: the fewest records in a leaf.
        max_depth: the most nodes from the root to a leaf; None for any number.
        extra: whether thresholds are drawn at random and every tree sees all records, as in
            extremely randomised trees (Geurts et al. 2006,
            https://doi.org/10.1007/s10994-006-6226-1).

    Raises:
        ConfigError: as `FittedModel`; from `fit`, if scikit-learn is absent or refuses an option.
    """

    def __init__(
        self,
        schema: Schema,
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
        num_trees: int = 500,
        max_features: float = 0.3,
        min_samples_leaf: int = 1,
        max_depth: int | None = None,
        extra: bool = False,
    ) -> None:
        super().__init__(schema, head, scalers)
        self.extra = extra
        self.options: dict[str, Any] = {
            "n_estimators": num_trees,
            "max_features": max_features,
            "min_samples_leaf": min_samples_leaf,
            "max_depth": max_depth,
        }

    def empty(self) -> TreeEnsemble:
        """Zeros, or equal probabilities."""
        is_number = isinstance(self.head, RegressionHead)
        base = 0.0 if is_number else 1.0 / max(self.num_outputs, 2)
        return TreeEnsemble(self.num_outputs, base=[base] * self.num_outputs)

    def fit_target(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> TreeEnsemble:
        """The trees of a forest that scikit-learn fits."""
        x, y, weights = repeated(x, y, weights)
        sample_weight = None if weights is None else weights.numpy()
        forest = self.fit_forest(x.numpy(), y.numpy(), sample_weight)
        return as_tensors(forest, self.num_outputs)

    def fit_forest(
        self, x: NDArray[np.float32], y: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> Any:
        """scikit-learn's own forest."""
        ensemble = import_ensemble("forest")
        kind = "Regressor" if isinstance(self.head, RegressionHead) else "Classifier"
        name = ("ExtraTrees" if self.extra else "RandomForest") + kind
        options = {**self.options, "random_state": draw_seed(), "n_jobs": torch.get_num_threads()}
        return getattr(ensemble, name)(**options).fit(as_sparse(x), y, sample_weight=weights)

    def raw(self, fitted: Tensor) -> Tensor:
        """Numbers as they are, probabilities as logits or logarithms."""
        if isinstance(self.head, RegressionHead):
            return fitted
        if self.num_outputs == 1:
            return torch.logit(fitted, LEAST)
        return fitted.clamp(min=LEAST).log()


def as_sparse(x: NDArray[np.float32]) -> Any:
    """The inputs column by column, without zeros, where few are anything else.

    The same trees come of it, on counts of substructures some ten times as fast; not so with dense
    columns beside them.
    """
    from scipy.sparse import csc_matrix

    return csc_matrix(x) if np.count_nonzero(x) < _SPARSE * x.size else x


def as_tensors(forest: Any, num_outputs: int) -> TreeEnsemble:
    """The trees of a fitted forest of scikit-learn.

    Args:
        forest: the forest.
        num_outputs: 1 for numbers and for the probability of class 1, else the number of classes.
    """
    trees = [_tree(estimator.tree_, forest, num_outputs) for estimator in forest.estimators_]
    return TreeEnsemble(num_outputs, trees, 1.0 / len(trees))


def _tree(tree: Any, forest: Any, num_outputs: int) -> Tree:
    value = tree.value[:, 0, :]
    classes = getattr(forest, "classes_", None)
    if classes is not None:
        # A class that did not occur has no column there.
        shares = np.zeros((len(value), max(num_outputs, 2)))
        shares[:, classes.astype(int)] = value
        value = shares[:, 1:] if num_outputs == 1 else shares
    left, right = tree.children_left, tree.children_right
    return Tree(np.where(left < 0, -1, tree.feature), tree.threshold, left, right, value)
