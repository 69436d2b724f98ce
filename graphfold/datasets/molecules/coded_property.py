"""CodedProperty: a property of an atom or a bond as a column of integer codes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from graphfold.dag import Column


class CodedProperty:
    """A property coded as the place of its value in a list.

    All values outside the list share the last code: `other`.

    Args:
        name: the name of the feature column.
        read: takes the value from an RDKit atom or bond.
        values: the values with their own code, in order.
        has_other: whether other values can occur.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Any], Hashable],
        values: Iterable[Hashable],
        has_other: bool = True,
    ) -> None:
        self.name = name
        self.read = read
        self.code = {value: code for code, value in enumerate(values)}
        self.other = len(self.code)
        # One byte a code: a corpus of a million molecules has hundreds of millions of them.
        self.column = Column(name, "uint8", size=self.other + has_other)

    def codes(self, items: Sequence[Any]) -> list[int]:
        """One code for each atom or bond."""
        code, read, other = self.code, self.read, self.other
        return [code.get(read(item), other) for item in items]
