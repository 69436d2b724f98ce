"""Products by packed weights, of rows that may lie apart: kernels in C for CPUs.

A group's children lie anywhere in the state. Libraries want the rows of a product side by side, so
they would be copied first, which takes a tenth of the time of the product; and they need tens of
microseconds to begin, in which these kernels are done with the few rows at the top of a tree.
products.h says how.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.kernels.c_compiler import declare
from graphfold.batching.kernels.c_kernels import REALS, compile_kernels
from graphfold.batching.kernels.profiled import profiled
from graphfold.errors import EngineError

#: Fewer multiplications than these are not shared out among threads.
FEW_MULTIPLICATIONS = 1 << 20
#: A row is no more pieces than these.
MAX_PARTS = 64

#: Held by the thread that compiles.
_COMPILING = threading.Lock()


class Apart(NamedTuple):
    """[num_rows, num_parts * width] rows whose pieces lie apart.

    Args:
        source: [any, width] where the pieces lie.
        places: [num_rows * num_parts] the row of each piece.
        num_parts: of how many pieces a row is.
    """

    source: Tensor
    places: Tensor
    num_parts: int = 1

    def joined(self, num_parts: int) -> Apart:
        """The same pieces in rows of so many."""
        return Apart(self.source, self.places, num_parts)

    def gather(self) -> Tensor:
        """The rows side by side."""
        return self.source.index_select(0, self.places).view(-1, self.num_parts * self.width)

    @property
    def width(self) -> int:
        """Of a piece."""
        return self.source.shape[1]


class Packed(NamedTuple):
    """A weight [num_rows, num_columns] and a bias as the kernels read them."""

    numbers: Tensor
    num_rows: int
    num_columns: int


#: What can be multiplied by a packed weight.
Rows: TypeAlias = Tensor | Apart


def pack(weight: Tensor, bias: Tensor | None = None) -> Packed:
    """What `multiply` takes, for a weight [k, m] and a bias [m]; they are copied.

    Raises:
        EngineError: if the kernels cannot be compiled.
    """
    kernels = load(weight.dtype)
    num_rows, num_columns = weight.shape
    packed = weight.new_empty(kernels.packed_size(num_rows, num_columns))
    bias = None if bias is None else bias.contiguous()
    first = None if bias is None else bias.data_ptr()
    kernels.pack(
        weight.data_ptr(), *weight.stride(), first, num_rows, num_columns, packed.data_ptr()
    )
    return Packed(packed, num_rows, num_columns)


def multiply(x: Rows, packed: Packed, relu: bool = False, *, out: Tensor | None = None) -> Tensor:
    """[rows, m] x @ weight + bias. The bits of a row depend on that row of x alone.

    Args:
        x: [rows, k], a tensor or rows that lie apart.
        packed: a weight [k, m] and a bias [m].
        relu: whether negative sums become zero.
        out: [rows, m] where to write it, if that is given; its columns lie side by side.
    """
    numbers, num_terms, num_columns = packed
    source, where, num_parts = _lies(x)
    num_rows = x.places.shape[0] // num_parts if isinstance(x, Apart) else x.shape[0]
    if out is None:
        out = numbers.new_empty(num_rows, num_columns)
    load(numbers.dtype).multiply(
        source.data_ptr(),
        where,
        source.stride(0),
        num_parts,
        source.shape[1],
        numbers.data_ptr(),
        num_columns,
        out.data_ptr(),
        out.stride(0),
        num_rows,
        relu,
        _num_threads(num_rows * num_terms * num_columns),
    )
    return out


def sum_products(
    left: Tensor, x: Rows, total: Tensor | None = None, sums: Tensor | None = None
) -> Tensor:
    """[m, k] the sum over rows left.T @ x.

    Args:
        left: [rows, m].
        x: [rows, k], a tensor or rows that lie apart.
        total: [m, k] what it is added to, in place, if that is given.
        sums: [m] what the sum over the rows of `left` is added to, in place, if that is given.
    """
    if total is not None and not total.is_contiguous():
        return total.add_(sum_products(left, x, None, sums))
    left = left if left.stride(1) == 1 else left.contiguous()
    source, where, num_parts = _lies(x)
    (num_rows, num_left), width, adds = left.shape, source.shape[1], total is not None
    if total is None:
        total = left.new_empty(num_left, num_parts * width)
    load(left.dtype).sum_products(
        left.data_ptr(),
        left.stride(0),
        num_left,
        source.data_ptr(),
        where,
        source.stride(0),
        num_parts,
        width,
        total.data_ptr(),
        None if sums is None else sums.data_ptr(),
        num_rows,
        adds,
        _num_threads(num_rows * total.numel()),
    )
    return total


def _lies(x: Rows) -> tuple[Tensor, int | None, int]:
    """Where the pieces of rows lie, the address of their places, and how many make a row."""
    if isinstance(x, Apart):
        return x.source, x.places.data_ptr(), x.num_parts
    return x if x.stride(1) == 1 else x.contiguous(), None, 1


def _num_threads(num_multiplications: int) -> int:
    return torch.get_num_threads() if num_multiplications >= FEW_MULTIPLICATIONS else 1


class _Kernels(NamedTuple):
    """The functions of products.h for one dtype."""

    is_quick: Callable[[], int]
    packed_size: Callable[..., int]
    pack: Callable[..., None]
    multiply: Callable[..., None]
    sum_products: Callable[..., None]


def are_quick(dtype: torch.dtype) -> bool:
    """Whether there are kernels for a dtype that keep up with libraries: not on old processors.

    Raises:
        EngineError: if they cannot be compiled.
    """
    return dtype in REALS and bool(load(dtype).is_quick())


def load_in_background(dtype: torch.dtype) -> None:
    """Begins to compile the kernels, while other things are read; whoever needs them waits.

    If that fails, `load` says so when its turn comes.
    """

    def compile_and_forget() -> None:
        with suppress(EngineError):
            load(dtype)

    # Not a daemon: what the compiler writes to disk is always cleared away.
    threading.Thread(target=compile_and_forget).start()


@functools.cache
def load(dtype: torch.dtype) -> _Kernels:
    """The kernels for a dtype, which are compiled now if they are not.

    Raises:
        EngineError: if they cannot be compiled.
    """
    with _COMPILING:
        return _compile(dtype)


@functools.cache
def _compile(dtype: torch.dtype) -> _Kernels:
    library = compile_kernels("products.h", dtype, f"#define MAX_PARTS {MAX_PARTS}")
    return _Kernels(
        declare(library, "is_quick", "", ctypes.c_int64),
        declare(library, "packed_size", "ii", ctypes.c_int64),
        profiled("pack", declare(library, "pack", "piipiip")),
        profiled("product", declare(library, "multiply", "ppiiipipiiii")),
        profiled("product", declare(library, "sum_products", "piippiiippiii")),
    )
