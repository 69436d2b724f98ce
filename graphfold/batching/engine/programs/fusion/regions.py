"""Fusion: what of a program's code one kernel can compute instead of one call per operation.

A region is a set of nodes of the same rows that are computed element by element in a common width
of lanes. It is convex: nothing outside depends on a member and is needed by another one. So one
call can take its place, after all that it reads and before all that reads it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from graphfold.batching.engine.programs.fusion.lanes import (
    cuts,
    is_view,
    rows_of,
    source_of,
    trailing,
)
from graphfold.batching.engine.programs.fusion.operations import is_cat, is_computable, is_constant

aten = torch.ops.aten

#: More lanes than this are not held for one tensor.
MAX_LANES = 16


@dataclass
class Region:
    """Nodes for one kernel.

    Args:
        members: what it computes, in order.
        views: what only arranges members; such a node lives on outside if it is read there.
    """

    members: dict[fx.Node, None]
    views: dict[fx.Node, None] = field(default_factory=dict)

    @property
    def inputs(self) -> list[fx.Node]:
        """What members read from outside."""
        read = (source for node in self.members for source in node.all_input_nodes)
        inside = self.members | self.views
        return [n for n in dict.fromkeys(read) if n not in inside and not is_constant(n)]

    @property
    def outputs(self) -> list[fx.Node]:
        """The members that are read outside."""
        return [node for node in self.members if self._is_read(node)]

    @property
    def lane(self) -> int:
        """How many columns the members have in common: those of a lane."""
        widths = [cut for node in self._looked_through() for cut in cuts(node)]
        parts = (part for node in self.members if is_cat(node) for part in node.all_input_nodes)
        widths += [node.meta["val"].shape[-1] for node in (*self.members, *parts)]
        # One column is stretched to any number of them.
        last = [trailing(node.meta["val"])[-1:] for node in self.inputs]
        return math.gcd(*widths, *(size for sizes in last for size in sizes if size > 1))

    @property
    def fits(self) -> bool:
        """Whether no tensor has too many lanes."""
        nodes = (*self.members, *self.inputs)
        most = max(math.prod(trailing(node.meta["val"])) for node in nodes)
        reads_rows = any(rows_of(node.meta["val"]) is not None for node in self.inputs)
        return reads_rows and most <= MAX_LANES * self.lane

    def _is_read(self, node: fx.Node) -> bool:
        outside = (user for user in node.users if user not in self.members)
        return any(user not in self.views or self._is_read(user) for user in outside)

    def _looked_through(self) -> Iterator[fx.Node]:
        """The views through which members read members."""
        found: dict[fx.Node, None] = {}
        stack = [source for node in self.members for source in node.all_input_nodes]
        while stack:
            node = stack.pop()
            if node in self.views and node not in found:
                found[node] = None
                stack.append(source_of(node))
        yield from found


#: Gives the function of a region: (inputs ..., out_0=None, ...) -> outputs; an output is written to
#: the place that is given for it, else to new memory.
Build = Callable[[Region], Callable[..., Any]]


class Kernels(NamedTuple):
    """The kernels that a program may have.

    Args:
        build: makes those of regions.
        packs: whether products have kernels too, `kernels.products`.
    """

    build: Build
    packs: bool


def fuse(graph: fx.Graph, build: Build) -> dict[fx.Node, fx.Node | None]:
    """Puts one call in the place of every region of a graph.

    Args:
        graph: straight-line code whose nodes have their values' shapes in `meta["val"]`.
        build: makes what is called.

    Returns:
        The nodes that are gone -> what took their place, or None if nothing else read them.
    """
    graph.eliminate_dead_code()
    gone: dict[fx.Node, fx.Node | None] = {**_split_products(graph)}
    for seed in list(graph.nodes):
        if seed not in gone and is_computable(seed):
            region = find_region(graph, seed)
            if len(region.members) > 1:
                gone |= _replace(graph, region, build(region))
    return gone


def place_result(result: fx.Node, place: fx.Node) -> None:
    """Lets the call of a region write one of its results to a place."""
    call, index = result.args
    assert isinstance(call, fx.Node)
    call.kwargs = {**call.kwargs, f"out_{index}": place}


def find_region(graph: fx.Graph, seed: fx.Node) -> Region:
    """The region that begins with a node; it takes in whatever comes later and fits."""
    region = Region({seed: None})
    behind: set[fx.Node] = set()  # what depends on the region through something else
    rows = rows_of(seed.meta["val"])
    nodes = iter(graph.nodes)
    for node in nodes:
        if node is seed:
            break
    for node in nodes:
        sources = node.all_input_nodes
        if not behind.isdisjoint(sources):
            behind.add(node)
        elif is_computable(node) and rows_of(node.meta["val"]) == rows and _fits(region, node):
            region.members[node] = None
        elif any(source in region.members or source in region.views for source in sources):
            if is_view(node):
                region.views[node] = None
            else:
                behind.add(node)
    return region


def _split_products(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Takes the bias out of products where a kernel reads them, and adds it on the way.

    Returns:
        The products with a bias -> their sums with it.
    """
    sums = {}
    for node in list(graph.nodes):
        is_product = node.target == aten.addmm.default and not node.kwargs
        if is_product and _is_read_by_kernels(node):
            bias, *factors = node.args
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, tuple(factors))
                sums[node] = graph.call_function(aten.add.Tensor, (product, bias))
            product.meta, sums[node].meta = dict(node.meta), dict(node.meta)
            node.replace_all_uses_with(sums[node])
            graph.erase_node(node)
    return sums


def _is_read_by_kernels(node: fx.Node) -> bool:
    """Whether all that reads a node, through views too, is what kernels compute."""
    readers = [is_computable(n) or (is_view(n) and _is_read_by_kernels(n)) for n in node.users]
    return bool(readers) and all(readers)


def _fits(region: Region, node: fx.Node) -> bool:
    return Region({**region.members, node: None}, region.views).fits


def _replace(
    graph: fx.Graph, region: Region, function: Callable[..., Any]
) -> dict[fx.Node, fx.Node | None]:
    """Puts a call in the place of a region; returns what took the place of its members."""
    inputs, outputs = region.inputs, region.outputs
    with graph.inserting_after(list(region.members)[-1]):
        call = graph.call_function(function, tuple(inputs))
    gone: dict[fx.Node, fx.Node | None] = dict.fromkeys(region.members)
    place = call
    for index, node in enumerate(outputs):
        with graph.inserting_after(place):
            place = graph.call_function(operator.getitem, (call, index))
        place.meta = dict(node.meta)
        gone[node] = place
        for user in [user for user in node.users if user not in region.members]:
            user.replace_input_with(node, place)
    for node in reversed([*graph.nodes]):
        if not node.users and (node in region.members or node in region.views):
            graph.erase_node(node)
            gone.setdefault(node, None)
    _move_behind(graph, call, place)
    return gone


def _move_behind(graph: fx.Graph, call: fx.Node, last: fx.Node) -> None:
    """Moves what reads a call's results, and stands before it, behind the last of them."""
    early: set[fx.Node] = set()
    results = set(call.users)
    for node in list(graph.nodes):
        if node is call:
            return
        sources = node.all_input_nodes
        if not results.isdisjoint(sources) or not early.isdisjoint(sources):
            early.add(node)
            last.append(node)
            last = node
