"""Random forests and gradient boosting on the inputs of whole graphs, stored as plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphfold.dag import Schema
from graphfold.layers.baselines.fitted_model import (
    TargetModel,
    draw_seed,
    import_ensemble,
    repeated,
)
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.regression import RegressionHead

#: How many (row, tree) pairs go down the trees at once.
PAIRS_AT_ONCE = 1 << 19


class Tree(NamedTuple):
    """One fitted tree; node 0 is its root.

    Args:
        feature: [num_nodes] the input that a node compares; negative at a leaf.
        threshold: [num_nodes] a row goes to the left where its input is at most this.
        left: [num_nodes] the node on the left.
        right: [num_nodes] the node on the right.
        value: [num_nodes, num_outputs] what a leaf says.
    """

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    value: NDArray[Any]


class TreeEnsemble(nn.Module):
    """The weighted sum of what trees say, all rows and all trees together, a level at a time.

    It holds no parameters: trees are fitted elsewhere. Loading a state takes its number of trees.

    Args:
        num_outputs: how many numbers a leaf says.
        trees: the trees; none for a constant.
        weight: of every tree.
        base: [num_outputs] what is added; zeros by default.

    Shape:
        x: [num_rows, num_inputs], single precision
        returns: [num_rows, num_outputs]
    """

    feature: Tensor  # [num_nodes] int32, over all trees; negative at a leaf
    threshold: Tensor  # [num_nodes] float32
    left: Tensor  # [num_nodes] int32, counted over all trees
    right: Tensor  # [num_nodes] int32
    value: Tensor  # [num_nodes, num_outputs] float32
    root: Tensor  # [num_trees] int32
    weight: Tensor  # [] float32
    base: Tensor  # [num_outputs] float32

    def __init__(
        self,
        num_outputs: int,
        trees: Sequence[Tree] = (),
        weight: float = 1.0,
        base: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        sizes = [len(tree.feature) for tree in trees]
        root = np.cumsum([0, *sizes])[:-1] if trees else np.empty(0)
        starts = root.repeat(sizes) if trees else root
        for name in ("feature", "left", "right"):
            rows = _joined([getattr(tree, name) for tree in trees])
            moved = rows if name == "feature" else rows + starts
            self.register_buffer(name, torch.from_numpy(moved.astype(np.int32)))
        threshold = _rounded_down(_joined([tree.threshold for tree in trees]))
        self.register_buffer("threshold", torch.from_numpy(threshold))
        values = [tree.value for tree in trees] or [np.empty((0, num_outputs))]
        self.register_buffer("value", torch.from_numpy(np.concatenate(values).astype(np.float32)))
        self.register_buffer("root", torch.from_numpy(root.astype(np.int32)))
        self.register_buffer("weight", torch.tensor(weight, dtype=torch.float32))
        zeros = [0.0] * num_outputs
        self.register_buffer("base", torch.tensor(base or zeros, dtype=torch.float32))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.root)} trees, {len(self.feature)} nodes)"

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum over the trees."""
        if not len(self.root):
            return self.base.to(x.dtype).expand(len(x), -1)
        step = max(1, PAIRS_AT_ONCE // len(self.root))
        parts = (x[first : first + step] for first in range(0, max(len(x), 1), step))
        sums = [self.each(part).double().sum(1) for part in parts]
        total = torch.cat(sums)
        return (self.base + self.weight * total).to(x.dtype)

    def each(self, x: Tensor) -> Tensor:
        """[num_rows, num_trees, num_outputs] what each tree says of each row."""
        num_rows, num_inputs = x.shape
        first = torch.arange(num_rows, device=x.device).mul(num_inputs)
        first = first.repeat_interleave(len(self.root))
        node = self.root.long().repeat(num_rows)
        inner = torch.nonzero(self.feature[node] >= 0).view(-1)
        flat = x.reshape(-1)
        while len(inner):
            at = node[inner]
            is_left = flat[first[inner] + self.feature[at]] <= self.threshold[at]
            below = torch.where(is_left, self.left[at], self.right[at]).long()
            node[inner] = below
            inner = inner[self.feature[below] >= 0]
        return self.value[node].view(num_rows, len(self.root), len(self.base))

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes the sizes of what is loaded: those of the trees are known since they are fitted."""
        take_sizes(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if not self._ends():
            raise RuntimeError("its decision trees do not end in leaves")

    def _ends(self) -> bool:
        """True if every way down comes to a leaf, because children stand after their parents."""
        count = len(self.feature)
        if not count == len(self.threshold) == len(self.left) == len(self.right) == len(self.value):
            return False
        inner = torch.nonzero(self.feature >= 0)
        below = torch.cat([self.left[inner], self.right[inner]], dim=1)
        is_below = (below > inner) & (below < count)
        return bool(is_below.all() and ((self.root >= 0) & (self.root < count)).all())


def take_sizes(module: nn.Module, state_dict: Mapping[str, Any], prefix: str) -> None:
    """Gives the buffers of a module the sizes of a state that is about to be loaded."""
    for name, own in list(module.named_buffers(recurse=False)):
        stored = state_dict.get(prefix + name)
        if isinstance(stored, Tensor) and stored.dim() == own.dim():
            setattr(module, name, own.new_empty(stored.shape))


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0)


def _rounded_down(threshold: NDArray[Any]) -> NDArray[np.float32]:
    """The largest single-precision number up to each threshold: x <= t is the same for such x."""
    single = threshold.astype(np.float32)
    above = single.astype(np.float64) > threshold
    return np.where(above, np.nextafter(single, np.float32(-np.inf)), single).astype(np.float32)


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
        return boosting_tensors(boosting, self.num_outputs, columns)

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


def boosting_tensors(
    boosting: Any, num_outputs: int, inputs: NDArray[Any] | None = None
) -> TreeEnsemble:
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
    # scikit-learn documents no way to the trees of this model; they are read once, after fitting.
    base[columns] = boosting._baseline_prediction.reshape(-1)  # noqa: SLF001
    trees = [
        _boosted_tree(predictor.nodes, column, num_outputs, inputs)
        for stage in boosting._predictors  # noqa: SLF001
        for column, predictor in zip(columns, stage, strict=True)
    ]
    return TreeEnsemble(num_outputs, trees, base=base.tolist())


def _boosted_tree(nodes: NDArray[Any], column: int, num_outputs: int, inputs: NDArray[Any]) -> Tree:
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
