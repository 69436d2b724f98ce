"""States: what the passes computed, in node order for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class States(Mapping[str, Tensor]):
    """The fields of all nodes after the passes.

    The rows stay where the engine put them until a field is asked for.

    Args:
        fields: field -> [num_nodes + 1, width] in row order; row 0 belongs to no node.
        row: [num_nodes] the row of each node.
        has: field -> op types whose nodes have it.
    """

    def __init__(
        self, fields: Mapping[str, Tensor], row: Tensor, has: Mapping[str, frozenset[int]]
    ) -> None:
        self._fields = fields
        self._row = row
        self._has = has

    def __getitem__(self, field: str) -> Tensor:
        """[num_nodes, width] in node order; zeros for nodes whose type lacks the field."""
        return self._fields[field].index_select(0, self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def at(self, field: str, nodes: Tensor) -> Tensor:
        """[len(nodes), width] the field of some nodes only."""
        return self._fields[field].index_select(0, self._row.index_select(0, nodes))

    def has(self, field: str, op_type: Tensor) -> Tensor:
        """[num_nodes] bool, whether nodes of these types have the field."""
        types = torch.tensor(sorted(self._has[field]), dtype=torch.int64, device=op_type.device)
        return torch.isin(op_type, types)
