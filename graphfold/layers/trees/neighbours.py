"""NeighboursCell: a node and those next to it, the base of models that count neighbours."""

from __future__ import annotations

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children


class NeighboursCell(Cell):
    """A node and its inputs, or in a pass `Down` its readers, added up; nothing is learned.

    After `BagCell`, and each over the sums of the one before, such passes give a node the bag of
    all nodes within so many steps: with a linear head a model that is linear in what they are, and
    blind to where, to compare other models with.

        y = x + Σ_k x_k

    Args:
        hidden_size: width of both fields.
        source: x, the field of an earlier pass.
        field: y, the field of a node.

    Shape:
        children: rows of `source`, [num_child_edges, hidden_size]
        returns: {field: [group_size, hidden_size]}
    """

    def __init__(self, hidden_size: int, source: str = "h", field: str = "around") -> None:
        super().__init__()
        self.source, self.field = source, field
        self.fields = {field: hidden_size}
        self.reads = (source,)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The sums."""
        return {self.field: children.previous(self.source) + children.sum(self.source)}
