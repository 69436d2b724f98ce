"""TorchProgram: the function of a group that the torch backend runs, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching.compiler.program import ONE, Key
from graphfold.batching.kernels.gather import gather_sum


class Argument(NamedTuple):
    """An argument of the function of a program, given for each group.

    Args:
        kind: "piece", the rows of the group in a tensor; "whole", all of it; or what
            `TorchMemory` makes of it, see `TorchMemory._column`.
        key: the tensor.
        space: of a piece, where its rows are counted from.
        number: of a number.
    """

    kind: str
    key: Key = ("", "")
    space: int = ONE
    number: float = 0.0


@dataclass(frozen=True)
class TorchProgram:
    """The program of one direction of a cell.

    Args:
        run: computes a group: (number of nodes, number of edges, arguments ...).
        arguments: what it is given.
        keys: the tensors that these are, or are made of.
    """

    run: Callable[..., None]
    arguments: tuple[Argument, ...]
    keys: tuple[Key, ...]

    @property
    def read_constants(self) -> frozenset[Key]:
        """The constants that are read number by number; weights are multiplied as they lie."""
        read = {a.key for a in self.arguments if a.kind == "whole"}
        return frozenset(key for key in read if key[0] == "constant")


# What the function of a program calls besides torch.


def max_rows(values: Tensor, parent: Tensor, num_nodes: int) -> Tensor:
    """[num_nodes, width] the maximum over the edges of each node, 0 without edges."""
    zeros = values.new_zeros(num_nodes, values.shape[1])
    index = parent.view(-1, 1).expand_as(values)
    return zeros.scatter_reduce_(0, index, values, "amax", include_self=False)


#: So many entries may the matrix have that tells kinds apart on a GPU.
MOST_ONES = 1 << 26


def add_by_kind(table: Tensor, kind: Tensor, rows: Tensor) -> None:
    """Adds each row to that of its kind in a table.

    On a GPU as a product with ones and zeros, since `index_add_` adds up there in any order; of
    more kinds than that is for, hardly two rows are of one.

    Shape:
        table: [num_kinds, width]
        kind: [num_rows]
        rows: [num_rows, width]
    """
    if rows.is_cpu or len(table) * len(kind) > MOST_ONES:
        table.index_add_(0, kind, rows)
    else:
        table.addmm_(one_hot(kind, len(table)).to(rows.dtype), rows)


def one_hot(kind: Tensor, num_kinds: int) -> Tensor:
    """[num_kinds, num_rows] bool, whether each row is of each kind."""
    return torch.arange(num_kinds, device=kind.device).unsqueeze(1) == kind


class Pulled(NamedTuple):
    """The parts of the gradient of the rows of a group.

    Args:
        upstream: [size, width] from outside of the pass, or None.
        left: (values, rows of them, where those of each row of the group begin, weights or None).
        most: how many values of one kind belong to a row, at most.
    """

    upstream: Tensor | None
    left: Sequence[tuple[Tensor, Tensor, Tensor, Tensor | None]]
    most: int = 0


def pull(pulled: Pulled, like: Tensor, num_nodes: int, width: int) -> Tensor:
    """[num_nodes, width] the gradient of the rows of a group."""
    total = pulled.upstream
    for values, index, ptr, weight in pulled.left:
        own = gather_sum(values, index, ptr, weight)
        total = own if total is None else own.add_(total)
    return like.new_zeros(num_nodes, width) if total is None else total


#: A kernel adds up to so many rows for each of its own, one after the other; more, torch.
MAX_READERS = 8


class Few(NamedTuple):
    """The parts of a gradient that a kernel adds up; an empty tensor stands for an absent one.

    Args:
        upstream: [size, width] from outside of the pass.
        has_upstream: whether there is one.
        values: [any, width] what readers have left.
        reader: the rows of these that belong to the group.
        ptr: [size + 1] where those of each row of the group begin.
        most: how many a row has, at most.
    """

    upstream: Tensor
    has_upstream: int
    values: Tensor
    reader: Tensor
    ptr: Tensor
    most: int


def few(pulled: Pulled, like: Tensor, num_nodes: int, width: int) -> Few:
    """The gradient of the rows of a group for a kernel; parts of several kinds are added up."""
    upstream, left = pulled.upstream, pulled.left
    if left and (len(left) > 1 or left[0][3] is not None or pulled.most > MAX_READERS):
        upstream, left = pull(pulled, like, num_nodes, width), ()
    has_upstream, upstream = int(upstream is not None), like if upstream is None else upstream
    if not left:  # of integers, too: a kernel is made for the kinds of its first arguments
        none = like.new_empty(0, dtype=torch.int64)
        return Few(upstream, has_upstream, like, none, none, 0)
    values, reader, ptr, _ = left[0]
    return Few(upstream, has_upstream, values, reader, ptr, pulled.most)
