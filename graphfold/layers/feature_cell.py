"""FeatureCell: base of cells that read features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.children import Children
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.column_encoder import features, parts


class FeatureCell(Cell):
    """Base of cells with a linear map of the features and with dropout.

    Neither depends on children, so both are computed before the first level, for all nodes of a
    type: the parts of x in `forward` are the parts of the product (see `of_x`), and in training
    "mask".

    Args:
        fields: the fields of a node, name -> width.
        input_size: width of the node features; 0 for nodes without features.
        product: width of the product with the features.
        dropout: probability of dropping an entry.
        dropped: width of the dropout mask; None for the width of the first field.
        own: fields of earlier passes, as wide as the first field, that replace the features, side
            by side; empty for the features.
        bias: whether the product has a bias.

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self,
        fields: Mapping[str, int],
        input_size: int = 0,
        product: int = 0,
        dropout: float = 0.0,
        dropped: int | None = None,
        own: Sequence[str] = (),
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.fields = fields
        first = next(iter(fields.values()))
        self.own = tuple(own)
        input_size = len(self.own) * first or input_size
        self.from_x = nn.Linear(input_size, product, bias=bias) if input_size else None
        self.dropout = StateDropout(dropout)
        self.dropped = dropped or first

    def before(self, x: NodeInput) -> NodeInput:
        """The product with the features in parts, and the dropout mask."""
        x = features(x)
        mask: dict[str, Tensor] = self.dropout(x, self.dropped)
        if self.from_x is None or self.own:
            return mask
        return {**self.of_x(self.from_x(x)), **mask}

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """Splits the product with the features into named parts; subclasses override it."""
        return {"x": product}

    def inputs(self, x: NodeInput, children: Children) -> Mapping[str, Tensor]:
        """The parts of x by name; with `own`, also the product with those fields."""
        if self.from_x is None or not self.own:
            return parts(x)
        own = torch.cat([children.previous(name) for name in self.own], dim=1)
        return {**parts(x), **self.of_x(self.from_x(own))}


def apply_mask(h: Tensor, x: NodeInput) -> Tensor:
    """[group_size, width] `h` times the dropout mask in x; x has one in training."""
    mask = parts(x).get("mask")
    return h if mask is None else h * mask


def add_part(
    total: Tensor, x: NodeInput, name: str = "x", children: Children | None = None
) -> Tensor:
    """`total` plus a part of the product with the features; nodes without features have no part.

    Shape:
        total, returned: [group_size, width]; with `children`, [num_child_edges, width]
    """
    part = parts(x).get(name)
    if part is None:
        return total
    return total + (part if children is None else children.expand(part))
