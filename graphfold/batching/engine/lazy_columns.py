"""LazyColumns: some rows of several columns, each looked up when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from torch import Tensor

from graphfold.batching.kernels.gather import select_rows


class LazyColumns(Mapping[str, Tensor]):
    """Columns by name; what a cell does not read costs nothing.

    Args:
        names: of the columns.
        find: gives a column by its name, once.
    """

    def __init__(self, names: Collection[str], find: Callable[[str], Tensor]) -> None:
        self._names, self._find = names, find
        self._known: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def select_columns(columns: Mapping[str, Tensor], rows: Tensor) -> LazyColumns:
    """Some rows, [num_rows], of columns, name -> [any, ...]."""
    return LazyColumns(columns.keys(), lambda name: select_rows(columns[name], rows))
