"""RowCount: a number of nodes or edges in a trace, which code may use as a size and not read."""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

#: Says no to a use of a number: (what the code does) -> never returns.
Refuse = Callable[[str], NoReturn]


class RowCount(torch.SymInt):
    """A number that differs from group to group: of nodes, of edges, or a multiple of these.

    A program serves groups of all sizes, so the code of a cell must not depend on it. It may be the
    size of a tensor; comparisons that hold for all groups are answered; every other use is refused.

    It is no `int`, because C code would take the number out of one without asking; functions of
    torch take it for a size that is not known yet, and hand it to `Guard`.

    Args:
        value: the number in this trace.
        least: the smallest number that it can be.
        refuse: raises for a use that is not allowed.
        assume_more: called where an answer holds only if there is more than one node; None if that
            cannot be assumed.
        is_multiple: whether it is so many times the number of nodes or edges, and no more.
    """

    def __init__(
        self,
        value: int,
        least: int,
        refuse: Refuse,
        assume_more: Callable[[], None] | None = None,
        is_multiple: bool = True,
    ) -> None:
        self.value, self.least, self.is_multiple = value, least, is_multiple
        self._refuse, self._assume_more = refuse, assume_more

    def _holds(self, is_so: Callable[[int], bool], use: str) -> bool:
        """True if something holds for the smallest number, and so for all; else it is refused."""
        if is_so(self.least):
            return True
        if self._assume_more is not None and is_so(2 * self.least):
            self._assume_more()
            return True
        raise self._refuse(use)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, float, RowCount)) and not self > other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return not self >= other

    def __le__(self, other: object) -> bool:
        return not self > other

    def __ge__(self, other: object) -> bool:
        return self._exceeds(other, operator.ge)

    def __gt__(self, other: object) -> bool:
        return self._exceeds(other, operator.gt)

    def _exceeds(self, other: object, is_so: Callable[[int, Any], bool]) -> bool:
        """Compares it with a number, or with the same number of every group."""
        if isinstance(other, (int, float)):
            return self._holds(lambda least: is_so(least, other), f"compares it with {other}")
        if isinstance(other, RowCount) and other.value == self.value:
            return is_so(self.value, other.value)
        raise self._refuse(f"compares it with {_kind(other)}")

    def __bool__(self) -> bool:
        return self._holds(lambda least: least > 0, "asks whether there are any")

    def __mul__(self, factor: object) -> RowCount:
        if isinstance(factor, int) and factor > 0:
            value, least = self.value * factor, self.least * factor
            return RowCount(value, least, self._refuse, self._assume_more, self.is_multiple)
        raise self._refuse(f"multiplies it by {_kind(factor)}")

    def __add__(self, term: object) -> RowCount:
        if isinstance(term, int):
            value, least = self.value + term, max(self.least + term, 0)
            return RowCount(value, least, self._refuse, is_multiple=False)
        raise self._refuse(f"adds {_kind(term)} to it")

    def __sub__(self, term: object) -> RowCount:
        if isinstance(term, int):
            return self + -term
        raise self._refuse(f"subtracts {_kind(term)} from it")

    def __floordiv__(self, divisor: object) -> RowCount | int:
        if isinstance(divisor, RowCount):
            if divisor.is_multiple and self.is_multiple and self.value % divisor.value == 0:
                return self.value // divisor.value  # rows of edges for each node
        elif self.is_multiple and isinstance(divisor, int) and self.value % max(divisor, 1) == 0:
            return RowCount(self.value // divisor, self.least // divisor, self._refuse)
        raise self._refuse(f"divides it by {_kind(divisor)}")

    __rmul__, __radd__ = __mul__, __add__

    def __hash__(self) -> int:
        # Libraries that know of such numbers go on without a cache after this error.
        raise TypeError("a number of nodes that a trace does not know cannot be a key")

    def __repr__(self) -> str:
        raise self._refuse("turns it into text")

    def refuse_number(self, *_: object) -> NoReturn:
        """Refuses to be read as a number."""
        raise self._refuse("reads it as a number")


_REFUSED = """
index int float complex trunc floor ceil round abs neg pos invert truediv rtruediv rfloordiv rsub
mod rmod divmod rdivmod pow rpow lshift rlshift rshift rrshift and rand or ror xor rxor str format
reduce_ex
"""
for _name in _REFUSED.split():
    setattr(RowCount, f"__{_name}__", RowCount.refuse_number)


def _kind(value: object) -> str:
    return "another such number" if isinstance(value, RowCount) else f"a {type(value).__name__}"


class RowShape(tuple[Any, ...]):
    """The shape of a tensor, with a `RowCount` for its rows."""

    def numel(self) -> Any:
        """The product of the sizes, as `torch.Size` has it."""
        return functools.reduce(lambda product, size: size * product, self, 1)


def without_counts(value: Any) -> Any:
    """Arguments with each `RowCount` as a plain number; the same object if it has none."""
    if isinstance(value, RowCount):
        return value.value
    if isinstance(value, slice):
        return slice(*map(without_counts, (value.start, value.stop, value.step)))
    if type(value) in (tuple, list, RowShape):
        plain = [*map(without_counts, value)]
        if any(map(operator.is_not, plain, value)):
            return plain if type(value) is list else tuple(plain)
    return value


@contextmanager
def counted_len() -> Iterator[None]:
    """Inside, `len()` of a traced tensor gives a `RowCount`.

    Python turns what `__len__` gives into a plain number, so its own `len` is replaced while a cell
    is traced. Everybody else, other threads too, gets the same as ever.
    """
    python_len = builtins.len

    def length(value: Any, /) -> Any:
        return Tensor.__len__(value) if isinstance(value, Tensor) else python_len(value)  # type: ignore[no-untyped-call]

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = python_len
