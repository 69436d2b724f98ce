"""Guard: no number of a tensor, and no number of nodes, reaches the Python of a traced cell.

A program is made once and serves every batch. What Python has read from a tensor, or from the size
of a group, would be part of it for good. Sizes come to the code as `RowCount`s, which it may use as
sizes and not read.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphfold.batching.compiler.values import Untraceable
from graphfold.batching.places import Place

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


#: What Python may ask of a tensor: its kind. The program is made anew when a kind changes.
KIND = frozenset(
    {
        *("dim", "ndim", "ndimension", "dtype", "device", "layout", "element_size", "itemsize"),
        *("requires_grad", "is_floating_point", "is_complex", "is_signed", "is_contiguous"),
        *("is_cuda", "is_cpu", "is_meta", "is_mps", "is_sparse", "is_quantized", "get_device"),
        *("is_conj", "is_neg", "is_nested", "__hash__", "register_hook", "can_cast"),
    }
)
#: What gives sizes.
SIZES = frozenset({"shape", "size", "stride", "numel", "nelement", "__len__"})
#: Functions that may be given a number of nodes as a size.
TAKE_SIZES = frozenset(
    {
        *("view", "reshape", "expand", "broadcast_to", "unflatten", "narrow", "split", "repeat"),
        *("tile", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "__getitem__"),
        *("new_zeros", "new_ones", "new_empty", "new_full"),
    }
)
#: Where the numbers stand that fill a tensor: the first argument that is no size.
_FILLS = {"full": 1, "new_full": 2}
#: What gives Python the numbers of a tensor, the memory where they are, or a copy that is made by
#: no operation; other functions that give anything else than tensors are refused afterwards.
NUMBERS = frozenset(
    {
        *("tolist", "item", "numpy", "data_ptr", "untyped_storage", "storage", "storage_offset"),
        *("__dlpack__", "__dlpack_device__", "__cuda_array_interface__", "__repr__", "__format__"),
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__"),
        *("is_nonzero", "equal", "allclose", "__deepcopy__", "__reduce_ex__", "grad"),
    }
)
_PLAIN = (Tensor, torch.dtype, torch.device, torch.layout)


class Guard(TorchFunctionMode):
    """Inside, functions of torch give Python tensors and their kinds only.

    Sizes that count nodes or edges come as `RowCount`, where plain numbers would tell how many
    there are in the trace.

    Args:
        num_nodes: in the trace.
        num_edges: in the trace; None if each node has the same number of edges.
        in_rounds: whether it may be assumed that there is more than one node.
        find_place: gives the line of the cell that is running.

    Attributes:
        is_paused: set while an operation runs, whose own code may read what it wants.
        refused: the first refusal, so that no code of a cell can catch it unseen.
        assumes_more: whether the trace holds only for more than one node.
        counters: tensors of the cell that count its calls, each with what a call adds.
    """

    def __init__(
        self,
        num_nodes: int,
        num_edges: int | None,
        in_rounds: bool,
        find_place: Callable[[], Place | None],
    ) -> None:
        super().__init__()
        self.is_paused = self.assumes_more = False
        self.refused: Untraceable | None = None
        self.counters: list[tuple[Tensor, int]] = []
        self._num_nodes, self._num_edges = num_nodes, num_edges
        self._in_rounds, self.find_place = in_rounds, find_place

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.is_paused:
            return func(*args, **kwargs)
        name = _name_of(func)
        if name in SIZES:
            return self.counted(func(*args, **kwargs))
        plain, values = without_counts(args), without_counts(tuple(kwargs.values()))
        named = dict(zip(kwargs, values, strict=True))
        if plain is not args or any(map(operator.is_not, values, kwargs.values())):
            self._check_sizes(name, args, kwargs)
        if name in NUMBERS and any(args[0] is counter for counter, _ in self.counters):
            self.refuse("it reads how often it has been called")
        if name in NUMBERS or name.startswith("__array"):
            self.refuse(
                f"it is data-dependent: {_shown(name)} gives Python the numbers of a tensor"
            )
        if name.endswith("="):
            self.refuse(f"it sets .{name} of a tensor")
        result = func(*plain, **named)
        if name not in KIND and not _is_plain(result):
            kind = type(result).__name__
            self.refuse(f"it is data-dependent: {_shown(name)} gives Python a {kind}")
        return result

    def counted(self, sizes: Any) -> Any:
        """Sizes as code may see them."""
        if isinstance(sizes, int):
            return self._counted(sizes)
        found = [self._counted(size) for size in sizes]
        return RowShape(found) if any(isinstance(size, RowCount) for size in found) else sizes

    def _counted(self, size: int) -> int | RowCount:
        nodes, edges = self._num_nodes, self._num_edges
        if size and size % nodes == 0:
            note = functools.partial(setattr, self, "assumes_more", True)
            assume = note if self._in_rounds else None
            return RowCount(size, size // nodes, self._refuse_nodes, assume)
        if size == nodes + 1:
            return RowCount(size, 2, self._refuse_nodes, is_multiple=False)
        if size and edges and size % edges == 0:
            return RowCount(size, 0, self._refuse_edges)
        return size

    def _check_sizes(self, name: str, args: Any, kwargs: Any) -> None:
        """Refuses a number of nodes that is no size."""
        numbers = args[_FILLS[name] :] if name in _FILLS else ()
        numbers = (*numbers, kwargs.get("fill_value"))
        if name not in TAKE_SIZES or any(isinstance(number, RowCount) for number in numbers):
            self._refuse_nodes(f"gives it to {name} as a number")

    def _refuse_nodes(self, use: str) -> NoReturn:
        self.refuse(f"its code depends on how many nodes are in a group: it {use}")

    def _refuse_edges(self, use: str) -> NoReturn:
        self.refuse(f"its code depends on how many children a group has: it {use}")

    def refuse(self, reason: str) -> NoReturn:
        """Raises Untraceable with the line of the cell."""
        place = self.find_place()
        error = Untraceable(f"{reason} ({place})" if place else reason)
        self.refused = self.refused or error
        raise error


def _name_of(func: Callable[..., Any]) -> str:
    """A function as users call it; of a property its own name."""
    name = str(getattr(func, "__name__", func))
    if name in ("__get__", "__set__"):
        owner = getattr(func, "__self__", None)
        own = str(getattr(owner, "__name__", name))
        return own if name == "__get__" else f"{own}="
    return name


def _is_plain(result: Any) -> bool:
    """True if the result of a function holds only tensors, or their kinds."""
    if isinstance(result, (tuple, list)):
        return all(map(_is_plain, result))
    return result is None or isinstance(result, _PLAIN)


def _shown(name: str) -> str:
    """A function as messages name it."""
    return f"{name.strip('_')}()"
