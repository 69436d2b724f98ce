"""Checks of the data before training: molecules in several parts, targets without values."""

from __future__ import annotations

import warnings
from dataclasses import replace

from graphfold.dag import TypedDAG
from graphfold.datasets.inspection.graph_hash import describe_leak
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import DataError
from graphfold.layers import Model
from graphfold.layers.baselines.fitted_model import FittedModel


def warn_of_leak(data: DataModule) -> None:
    """Warns of molecules that are in train and held out as well; the report will say so, too."""
    leak = describe_leak(data.raw, data.split)
    if leak is not None:
        data.split = replace(data.split, notes=(*data.split.notes, leak))
        warnings.warn(leak, stacklevel=2)


def check_measured(model: Model, train: TypedDAG) -> None:
    """Warns of targets without a value in the training part; `FittedModel`s do themselves.

    A record of weight 0 has none.

    Raises:
        DataError: if no target has one.
    """
    if isinstance(model, FittedModel):
        return
    targets = model.head.targets
    known = model.head.measured(model.head.target_rows(train))
    known = known.reshape(len(known), len(targets))
    weights = train.weights()
    if weights is not None:
        known = known & (weights > 0)[model.head.row_graph(train)].unsqueeze(1)
    measured = known.any(0).tolist()
    if not any(measured):
        raise DataError(
            f"none of the {train.num_graphs} training records has a value of "
            f"{', '.join(targets)}. Give other data, or train on another target."
        )
    for name, is_measured in zip(targets, measured, strict=True):
        if not is_measured:
            warnings.warn(
                f"'{name}' is measured nowhere in the training part, so nothing of it is learnt, "
                "and its predictions mean nothing.",
                stacklevel=2,
            )
