"""CodedProperty: a property of an atom or a bond as a column of integer codes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from graphfold.dag import Column


class CodedProperty:
    """A property coded as the place of its value in a list.

    All values outside the list share the last code: `other`.

    Args:
        name: the name of the feature column.
        read: takes the value from `AtomFacts` or `BondFacts`.
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

    def value(self, facts: Any) -> int:
        """The code of one atom or bond."""
        return self.code.get(self.read(facts), self.other)
