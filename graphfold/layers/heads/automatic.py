"""The heads that `auto` chooses from; any other head is named by its class."""

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

#: In the order in which `auto` tries them.
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

#: A value of `model.head.loss` -> the head with this loss.
LOSSES: dict[str, type[NumberHead]] = {
    name: head for head in HEADS if issubclass(head, NumberHead) for name in head.losses_by_name
}


def choose_head(
    columns: Sequence[Column], level: str, pairs: bool, loss: str | None = None
) -> type[Head]:
    """The first head that suits some targets; else the last head, whose error names the fault.

    Args:
        columns: all targets of the level.
        level: the level of the targets, "graph" or "node".
        pairs: whether a row is a pair.
        loss: the loss of the head; None for any.

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
