"""Heads that `auto` chooses from. Any other is named by its class: `model.head._target_=PATH`."""

from __future__ import annotations

from collections.abc import Sequence

from graphfold.dag import Column
from graphfold.layers.heads.classification import ClassificationHead, PairClassificationHead
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.log_regression import LogRegressionHead
from graphfold.layers.heads.multi_label import MultiLabelHead
from graphfold.layers.heads.regression import RegressionHead
from graphfold.layers.heads.relatedness import RelatednessHead

#: In the order in which they are asked whether they suit the targets.
HEADS: tuple[type[Head], ...] = (
    RelatednessHead,
    PairClassificationHead,
    RegressionHead,
    LogRegressionHead,
    MultiLabelHead,
    ClassificationHead,
)


def choose_head(columns: Sequence[Column], level: str, pairs: bool, task: str | None) -> type[Head]:
    """The first head that suits some targets, else the last, which says what is wrong with them.

    Args:
        columns: all targets of the level.
        level: what has targets, "graph" or "node".
        pairs: whether a row is a pair.
        task: the adapter's option of that name, "regression" or "classification".
    """
    return next((head for head in HEADS if head.suits(columns, level, pairs, task)), HEADS[-1])
