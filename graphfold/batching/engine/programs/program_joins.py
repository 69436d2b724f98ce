"""Joins without copies: what is joined is written side by side from the start.

The gradients of gates are computed one by one and joined for the product with the weights, so a
tenth of the elementwise work of an LSTM's backward would be copying.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.lanes import rows_of
from graphfold.batching.engine.programs.program_places import (
    can_write,
    is_arithmetic,
    is_pointwise,
    write_to,
    written_to,
)
from graphfold.batching.engine.programs.program_rewrites import VIEWS, same_shape

aten = torch.ops.aten


def write_side_by_side(graph: fx.Graph) -> None:
    """Lets the parts of a join write to slices of what they are joined to.

    Later joins come first: what one of their parts is computed from can lie in its slice.
    """
    for join in reversed(list(graph.nodes)):
        if join.target == aten.cat.default and _joins_columns(*join.args):
            makers = [_maker(part, join) for part in cast(list[fx.Node], join.args[0])]
            if all(makers) and len(set(makers)) == len(makers):
                place = _place(graph, join)
                if place is not None:
                    _replace(graph, join, cast(list[fx.Node], makers), place)


def _joins_columns(parts: Sequence[fx.Node], dim: int = 0) -> bool:
    return dim in (1, -1) and all(part.meta["val"].dim() == 2 for part in parts)


def _maker(part: fx.Node, join: fx.Node) -> fx.Node | None:
    """The operation that can write a part of a join to its slice, if there is one."""
    maker = part
    while maker.target in VIEWS and len(maker.users) == 1:
        maker = maker.all_input_nodes[0]
    if len(maker.users) != 1 or written_to(maker) is not None or not is_arithmetic(maker):
        return None
    rows = rows_of(join.meta["val"])
    if rows is None or rows_of(maker.meta["val"]) != rows:  # a view of a slice divides columns only
        return None
    return maker if can_write(maker, maker, join.meta["val"].dtype) else None


def _place(graph: fx.Graph, join: fx.Node) -> fx.Node | None:
    """Memory for a join: that of what its only reader computes from it, or else new memory."""
    value, reader = join.meta["val"], next(iter(join.users), None)
    if reader is not None and len(join.users) == 1 and is_pointwise(reader):
        place = written_to(reader)
        # A slice holds nothing yet; a place of the whole program may hold what is read elsewhere.
        is_slice = place is not None and place.target is operator.getitem
        if is_slice and same_shape(reader.meta["val"], value) and _has_rows(reader, value):
            return place
    arguments = graph.find_nodes(op="placeholder")
    like = next((node for node in arguments if _has_rows(node, value)), None)
    return None if like is None else _new_memory(graph, like, value.shape[1])


def _has_rows(node: fx.Node, value: Tensor) -> bool:
    """Whether a node has as many rows as a value, and its dtype."""
    made = node.meta.get("val")
    is_like = isinstance(made, Tensor) and made.dtype == value.dtype
    return is_like and rows_of(made) == rows_of(value) is not None


def _new_memory(graph: fx.Graph, like: fx.Node, width: int) -> fx.Node:
    """[rows, width] with the rows and the dtype of an argument."""
    with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
        size = graph.call_method("size", (like, 0))
    with graph.inserting_after(size):
        return graph.call_method("new_empty", (like, [size, width]))


def _replace(graph: fx.Graph, join: fx.Node, makers: Sequence[fx.Node], place: fx.Node) -> None:
    """Puts a place, to which the makers of its parts write, where a join was."""
    parts = cast(list[fx.Node], join.args[0])
    widths = [part.meta["val"].shape[1] for part in parts]
    with graph.inserting_after(place):
        slices = graph.call_function(aten.split_with_sizes.default, (place, widths, 1))
    slices.meta["val"] = join.meta["val"].split_with_sizes(widths, 1)
    before = slices
    for index, maker in enumerate(makers):
        with graph.inserting_after(before):
            before = own = graph.call_function(operator.getitem, (slices, index))
        shape = maker.meta["val"].shape[1:]
        if shape != (widths[index],):
            with graph.inserting_after(own):
                before = own = graph.call_method("view", (own, [-1, *shape]))
        write_to(maker, own)
    place.meta = dict(join.meta)
    join.replace_all_uses_with(place)
    graph.erase_node(join)
    for part in parts:
        while not part.users and part not in makers:  # views that are not needed any more
            part, view = part.all_input_nodes[0], part
            graph.erase_node(view)
