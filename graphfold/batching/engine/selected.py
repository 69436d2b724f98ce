"""Selected: some rows of several columns, each looked up when somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from graphfold.batching.kernels.gather import select_rows


class Selected(Mapping[str, Tensor]):
    """Some rows of columns; what a cell does not read costs nothing.

    Args:
        columns: name -> [any, ...].
        rows: [num_rows] which of them.
    """

    def __init__(self, columns: Mapping[str, Tensor], rows: Tensor) -> None:
        self._columns = columns
        self._rows = rows
        self._known: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            self._known[name] = select_rows(self._columns[name], self._rows)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
