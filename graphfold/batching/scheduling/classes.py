"""Classes: which nodes are taken for the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphfold.batching.scheduling.row_numbers import Numbers, merge_equal
from graphfold.dag.depth import IntArray


class Classes(NamedTuple):
    """Nodes in classes of equal ones; the first node of each class represents it."""

    representative: IntArray  # [num_classes] ascending
    inverse: IntArray  # [num_nodes] the class of each node

    @staticmethod
    def of_first(first: IntArray) -> Classes:
        """From the first of the nodes that each node equals."""
        is_first = first == np.arange(len(first))
        return Classes(is_first.nonzero()[0], (is_first.cumsum() - 1)[first])

    @property
    def first(self) -> IntArray:
        """[num_nodes] the first of the nodes that each node equals."""
        return self.representative[self.inverse]

    @property
    def are_single(self) -> bool:
        """True if no two nodes are equal."""
        return len(self.representative) == len(self.inverse)

    @property
    def numbers(self) -> Numbers:
        """The class of each node, as a number that must agree."""
        return Numbers(self.inverse, len(self.representative))

    def among(self, nodes: IntArray) -> Classes:
        """The classes of some nodes alone, numbered anew."""
        first = np.arange(len(nodes))
        own = Numbers(self.inverse[nodes], len(self.representative))
        merge_equal(first.copy(), [own], first)
        return Classes.of_first(first)
