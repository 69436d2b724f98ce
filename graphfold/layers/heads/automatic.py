"""Heads that `auto` chooses from. Any other is named by its class: `model.head._target_=PATH`."""

from __future__ import annotations

from collections.abc import Sequence

from graphfold.dag import Column
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.heads.classification import (
    ClassificationHead,
    MultiLabelHead,
    PairClassificationHead,
)
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.numbers import (
    EvidentialHead,
    MeanVarianceHead,
    NumberHead,
    QuantileHead,
    RegressionHead,
)
from graphfold.layers.heads.relatedness import RelatednessHead

#: In the order in which they are asked whether they suit the targets.
HEADS: tuple[type[Head], ...] = (
    RelatednessHead,
    PairClassificationHead,
    RegressionHead,
    QuantileHead,
    MeanVarianceHead,
    EvidentialHead,
    MultiLabelHead,
    ClassificationHead,
)

#: What `model.head.loss` may name -> the head that has this loss.
LOSSES: dict[str, type[NumberHead]] = {
    name: head for head in HEADS if issubclass(head, NumberHead) for name in head.losses_by_name
}


def choose_head(
    columns: Sequence[Column], level: str, pairs: bool, loss: str | None = None
) -> type[Head]:
    """The first head that suits some targets, else the last, which says what is wrong with them.

    Args:
        columns: all targets of the level.
        level: what has targets, "graph" or "node".
        pairs: whether a row is a pair.
        loss: the loss that it has to have; None for any.

    Raises:
        ConfigError: if there is no such loss, or it is not for such targets.
    """
    if loss is None:
        return next((head for head in HEADS if head.suits(columns, level, pairs)), HEADS[-1])
    if loss not in LOSSES:
        raise ConfigError(
            f"model.head.loss is '{loss}'.{did_you_mean(loss, LOSSES)} Use one of "
            f"{', '.join(LOSSES)}."
        )
    if not LOSSES[loss].suits(columns, level, pairs):
        names = ", ".join(f"'{column.name}'" for column in columns)
        raise ConfigError(
            f"model.head.loss={loss} is for numbers, which {names} are not. Leave it out: classes "
            "are learnt by cross entropy, to which model.head.class_weights gives weights."
        )
    return LOSSES[loss]
