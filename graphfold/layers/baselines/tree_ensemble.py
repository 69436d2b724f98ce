"""TreeEnsemble: many fitted decision trees as plain tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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
