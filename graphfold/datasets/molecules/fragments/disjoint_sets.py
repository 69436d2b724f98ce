"""DisjointSets: numbers in groups that are joined one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class DisjointSets:
    """Numbers in groups that are joined one by one (union-find with path halving).

    Args:
        count: how many numbers; each is a group of its own at first.
    """

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def find(self, number: int) -> int:
        """The number that stands for the group of `number`."""
        above = self._above
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    def join(self, first: int, second: int) -> bool:
        """Makes one group of two; False if they were one."""
        first, second = self.find(first), self.find(second)
        self._above[first] = second
        return first != second

    def groups(
        self, items: Iterable[int], number: Callable[[int], int] = int
    ) -> dict[int, tuple[int, ...]]:
        """The items of each group; `number` says which number an item belongs to."""
        found: dict[int, list[int]] = {}
        for item in items:
            found.setdefault(self.find(number(item)), []).append(item)
        return {key: tuple(own) for key, own in found.items()}
