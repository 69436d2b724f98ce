"""FeatureCell: the base of cells that read features, and what most of them do with these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.children import Children
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.column_encoder import features, parts


class FeatureCell(Cell):
    """The base of cells whose product with the features, and dropout, need no children.

    Both are made before the first level, over all nodes of a type: the parts of x that `forward`
    gets are those of `of_x`, and "mask" in training.

    Args:
        fields: what a node stores, name -> width.
        input_size: width of the node features; 0 for nodes without features.
        product: width of the product with the features.
        dropout: probability of dropping an entry.
        dropped: width of what is dropped out; None for that of the first field.
        own: fields of earlier passes, as wide as the first one, that are x in place of the
            features, side by side; none for the features.
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
        """The products with the features, if there are any, and the dropout mask."""
        x = features(x)
        mask: dict[str, Tensor] = self.dropout(x, self.dropped)
        if self.from_x is None or self.own:
            return mask
        return {**self.of_x(self.from_x(x)), **mask}

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """The product with the features in parts, by name; for subclasses."""
        return {"x": product}

    def known(self, x: NodeInput, children: Children) -> Mapping[str, Tensor]:
        """Facts of a group of nodes that need no children, by name."""
        found = parts(x)
        if self.from_x is None or not self.own:
            return found
        own = torch.cat([children.previous(name) for name in self.own], dim=1)
        return {**found, **self.of_x(self.from_x(own))}


def drop_known(h: Tensor, known: Mapping[str, Tensor]) -> Tensor:
    """[group_size, width] `h` with the entries dropped that the mask says, in training."""
    return h * known["mask"] if "mask" in known else h


def add_known(total: Tensor, known: Mapping[str, Tensor], name: str = "x") -> Tensor:
    """[group_size, width] `total` and a part of the product with the features, if there is one."""
    return total + known[name] if name in known else total
