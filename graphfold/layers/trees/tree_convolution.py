"""Tree-based convolution: windows of a node and its children, seen as a continuous binary tree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask


class TreeCodingCell(FeatureCell):
    """The vector of a node from the features of its subtree; `TreeConvolutionCell` reads it.

    After the coding layer of Mou et al. (2016), https://arxiv.org/abs/1409.5718, sections 3.1 and
    3.2, with the shares η of `TreeConvolutionCell` and n children:

        v = tanh(W x + 1/n Σ_k (η_l W_l + η_r W_r) v_k + b)

    Differences from the paper: it is trained with the rest of the model, not before it; it repeats
    from level to level, so nodes without features have vectors, too; all children have the same
    weight, whatever their number of leaves.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `v`, the field of a node.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `v`, [num_child_edges, hidden_size]
        returns: {"v": [group_size, hidden_size]}
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__({"v": hidden_size}, input_size, hidden_size)
        self.from_children = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The vectors of the nodes."""
        sides = left_and_right(children, "v")
        count = children.count.to(sides.dtype).clamp(min=1).unsqueeze(1)
        total = self.from_children(sides / count)
        return {"v": torch.tanh(add_part(total, x))}


class TreeConvolutionCell(FeatureCell):
    """A convolution over windows of depth two: a node and its children.

    Mou et al. (2016), https://arxiv.org/abs/1409.5718, section 3.3 and equations 4-6. The weights
    of a child are a mixture of two, by its place k = 1 .. n among its siblings; a node and any
    number of children are so a binary tree whose places are continuous:

        h = tanh(W_t v + Σ_k (η_l W_l + η_r W_r) v_k + b)
        η_r = (k - 1) / (n - 1), or 1/2 for an only child    η_l = 1 - η_r

    It reads the field `v` of an earlier pass, of the node and of its children, so no window waits
    for another; `TreeCodingCell` makes it. Difference from the paper: `h` may be dropped out.

    Args:
        hidden_size: width of `v`, and of `h`, the field of a node.
        dropout: probability of dropping an entry of `h`.

    Shape:
        children: rows of `v`, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    reads = ("v",)

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, dropout=dropout)
        self.from_window = nn.Linear(3 * hidden_size, hidden_size)  # top, left, right

    def forward(self, x: NodeInput, children: Children) -> State:
        """The results of the windows below the nodes."""
        window = torch.cat([children.previous("v"), left_and_right(children, "v")], 1)
        h = torch.tanh(self.from_window(window))
        return {"h": apply_mask(h, x)}


class TreePoolingCell(Cell):
    """The largest entries of `h` among a node and all below it: at the root, max pooling.

    Mou et al. (2016), https://arxiv.org/abs/1409.5718, section 3.4, one-way pooling. Every node has
    the pooled vector of its own subtree, so phrases are classified as whole trees are. An absent
    child of a type of fixed arity counts as zeros.

    Args:
        hidden_size: width of `h`, and of `pooled`, the field of a node.

    Shape:
        children: rows of `pooled`, [num_child_edges, hidden_size]
        returns: {"pooled": [group_size, hidden_size]}
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"pooled": hidden_size}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The pooled vectors."""
        h, has_children = children.previous("h"), (children.count > 0).unsqueeze(1)
        highest = torch.maximum(h, children.max("pooled"))
        return {"pooled": torch.where(has_children, highest, h)}


def left_and_right(children: Children, field: str) -> Tensor:
    """[group_size, 2 * width] the sums Σ η_l h_k and Σ η_r h_k side by side."""
    total = children.sum(field)
    last = children.expand(children.count.to(total.dtype)) - 1
    position = children.position.to(total.dtype)
    is_only = (last == 0).to(total.dtype)
    right = children.sum(field, position / last.clamp(min=1) + 0.5 * is_only)
    return torch.cat([total - right, right], 1)
