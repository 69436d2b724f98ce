"""The input of a cell beside its children: one tensor, or several by name."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from graphfold.batching.cell import NodeInput
from graphfold.errors import ShapeError


def features(x: NodeInput) -> Tensor:
    """The features as they come from the encoder: one tensor.

    Raises:
        ShapeError: if they are several tensors by name.
    """
    if isinstance(x, Tensor):
        return x
    raise ShapeError(
        f"the features are a mapping of {', '.join(x) or 'nothing'}, but this cell reads one "
        "tensor. Concatenate them."
    )


def parts(x: NodeInput) -> Mapping[str, Tensor]:
    """The tensors that `before` returned, by name; a single one has the name "x"."""
    return {"x": x} if isinstance(x, Tensor) else x
