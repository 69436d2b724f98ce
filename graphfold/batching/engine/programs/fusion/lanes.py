"""Lanes: tensors of a group as columns of equal width, so that views cost nothing in a kernel.

Gates lie side by side: [rows, 5 * width] is five lanes of `width` columns, and so is
[rows, 5, width]. A kernel that computes one column of one row holds one value per lane; what only
arranges (split, view, expand, cat) moves their names about, and a sum over children adds them up.
A tensor is an array of names: of its dimensions after the rows, the last one counted in lanes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx

aten = torch.ops.aten

Lanes: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]

_SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)
_CUTS = (*_SPLITS, aten.slice.Tensor, aten.select.int)
_RESHAPES = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)


def rows_of(value: object) -> Hashable:
    """The open size of a tensor's first dimension; None if it has none, or others are open too."""
    if not isinstance(value, Tensor) or not value.dim():
        return None
    first, *rest = value.shape
    if not isinstance(first, torch.SymInt) or not all(isinstance(size, int) for size in rest):
        return None
    return str(first)


def trailing(value: Tensor) -> tuple[int, ...]:
    """The sizes after the rows; all sizes where the first is not that of the rows."""
    return tuple(value.shape[rows_of(value) is not None :])


def is_view(node: fx.Node) -> bool:
    """Whether a node only arranges, row by row, what one other holds."""
    if node.target is operator.getitem:
        return source_of(node).target in _SPLITS and is_view(source_of(node))
    if node.target not in (*_CUTS, *_RESHAPES, aten.expand.default):
        return False
    source, made = _value(source_of(node)), _value(node)
    made = made[0] if node.target in _SPLITS else made
    if rows_of(source) is None or rows_of(made) != rows_of(source) or made.dim() < 2:
        return False
    if node.target == aten.slice.Tensor and _argument(node, 4, 1) != 1:
        return False
    return node.target not in _CUTS or _dim(node) > 0


def source_of(node: fx.Node) -> fx.Node:
    """What a view looks at."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def cuts(node: fx.Node) -> Iterator[int]:
    """What the width of a lane has to divide, so that no view cuts a lane."""
    if node.target in _CUTS and _dim(node) == _value(source_of(node)).dim() - 1:
        yield from (bound for bounds in _bounds(node) for bound in bounds)
    if node.target not in _SPLITS:  # the parts speak for themselves
        yield _value(node).shape[-1]


def look_through(node: fx.Node, source: Any, lane: int) -> Any:
    """The lanes of a view, from those of what it looks at; a list of them for a split."""
    if node.target is operator.getitem:
        return source[node.args[1]]
    if node.target in _CUTS:
        return _cut(node, source, lane)
    shape = in_lanes(trailing(_value(node)), lane)
    is_expand = node.target == aten.expand.default
    return np.broadcast_to(source, shape) if is_expand else source.reshape(shape)


def in_lanes(sizes: Sequence[int], lane: int) -> tuple[int, ...]:
    """Sizes of a tensor, the last one counted in lanes; one column is stretched to a lane."""
    return (*sizes[:-1], *(max(size // lane, 1) for size in sizes[-1:]))


def add_up(source: Lanes, dim: int, add: Callable[[str, str], str]) -> Lanes:
    """The lanes of a sum over one dimension of the tensor, which is kept; not rows, not the last.

    Args:
        source: the lanes of the tensor.
        dim: the dimension.
        add: gives the name of the sum of two values.
    """
    total, *parts = np.split(source, source.shape[dim - 1], axis=dim - 1)
    for part in parts:
        total = np.asarray(np.frompyfunc(add, 2, 1)(total, part))
    return total


def _cut(node: fx.Node, source: Lanes, lane: int) -> Any:
    dim = _dim(node)
    unit = lane if dim == source.ndim else 1
    front = (slice(None),) * (dim - 1)
    parts = [source[(*front, slice(low // unit, high // unit))] for low, high in _bounds(node)]
    if node.target == aten.select.int:
        return parts[0].squeeze(dim - 1)
    return parts if node.target in _SPLITS else parts[0]


def _bounds(node: fx.Node) -> list[tuple[int, int]]:
    """Where the parts that a node cuts out begin and end."""
    size: int = _value(source_of(node)).shape[_dim(node)]
    if node.target in _SPLITS:
        sizes = [part.shape[_dim(node)] for part in _value(node)]
        return [(sum(sizes[:index]), sum(sizes[: index + 1])) for index in range(len(sizes))]
    if node.target == aten.select.int:
        start = int(_argument(node, 2, 0)) % size
        return [(start, start + 1)]
    start, stop, _ = slice(_argument(node, 2, None), _argument(node, 3, None)).indices(size)
    return [(start, stop)]


def _dim(node: fx.Node) -> int:
    """The dimension that a node cuts, counted from the first."""
    dim: int = _argument(node, 2 if node.target in _SPLITS else 1, 0)
    num_dims: int = _value(source_of(node)).dim()
    return dim % num_dims


def _argument(node: fx.Node, place: int, default: Any) -> Any:
    """An argument of an operation, which may have been given by name or not at all."""
    if place < len(node.args):
        return node.args[place]
    schema = node.target._schema  # type: ignore[union-attr]
    return node.kwargs.get(schema.arguments[place].name, default)


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")
