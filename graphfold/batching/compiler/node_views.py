"""NodeViews: what the nodes of a traced graph are, as views of values or as constants.

A tensor has its rows, one for each node or edge, in its first dimension or, after a `torch.stack`
of several, in a later one. The shape of a view is that of a row: without the dimension of the rows.
With one child for each node, rows of edges are rows of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.compiler.operations import DETACH
from graphfold.batching.compiler.trace import Signature, Trace, find_row_dim
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPY,
    EDGES,
    NODES,
    WHOLE,
    Untraceable,
    Value,
    ValueBuilder,
    View,
)

aten = torch.ops.aten


class NodeViews:
    """The values of a traced cell, by the nodes of its graph.

    Args:
        trace: of the cell.
        signature: what the cell may read.

    Attributes:
        to: the values so far.
        fixed: the nodes that depend on parameters alone, in order.
        constants: those of them that the values read.
    """

    def __init__(self, trace: Trace, signature: Signature) -> None:
        self.to = ValueBuilder(signature.arity)
        self.fixed: dict[fx.Node, None] = {}
        self.constants: dict[fx.Node, Value] = {}
        self._trace, self._signature = trace, signature
        self._nodes, self._edges = trace.sizes.nodes, signature.count_edges(trace.sizes)
        self._views: dict[fx.Node, Any] = {}
        self._whole: dict[fx.Node, View] = {}  # what a node looks at, contiguous

    def note(self, node: fx.Node, found: Any) -> None:
        """Notes what a node gives: a view, some, or nothing that native code has."""
        if isinstance(found, View) and found.space == EDGES and self._signature.arity == 1:
            by_node = self.to.in_space(found, NODES)
            found = by_node.arranged(by_node.shape[1:], by_node.steps[1:])
        self._views[node] = found

    def part(self, node: fx.Node, number: int) -> Any:
        """One of the views that a node gives."""
        return self._views[node][number]

    def of(self, node: Any, anywhere: bool = False) -> View:
        """The view of a node; a constant if it depends on parameters alone.

        Args:
            node: the node.
            anywhere: whether its rows may be in another dimension than the first.
        """
        if node in self.fixed:
            return self._constant(node).view
        view = self._views.get(node)
        if not isinstance(view, View):
            raise Untraceable("it reads what native code does not have, such as `children.parent`")
        if not anywhere and self.row_dim(node) != 0:
            raise Untraceable("it takes a tensor whose first dimension is not that of the nodes")
        return view

    def operand(self, argument: Any, node: fx.Node) -> Any:
        """An operand of an elementwise operation: a view that fits its result's, or a number."""
        if isinstance(argument, (bool, int)):
            return float(argument)
        if not isinstance(argument, fx.Node):
            return argument
        view, num_dims = self.of(argument, anywhere=True), node.meta["val"].dim()
        from_right = num_dims - (self.row_dim(node) or 0)  # where torch joins dimensions
        if argument in self.fixed:
            return _without_row(view, from_right)
        if argument.meta["val"].dim() - (self.row_dim(argument) or 0) != from_right:
            raise Untraceable("it works across the nodes of a group")
        missing = num_dims - 1 - len(view.shape)
        return view.arranged((*[1] * missing, *view.shape), (*[0] * missing, *view.steps))

    def _constant(self, node: fx.Node) -> Value:
        if node not in self.constants:
            value = node.meta.get("val")
            if value is None:
                value = self._trace.constants[str(node.target)]
            dtype = value.dtype
            if dtype != self._signature.dtype and dtype.is_floating_point:
                raise Untraceable(f"a parameter is {dtype}, others are {self._signature.dtype}")
            if not dtype.is_floating_point:
                raise Untraceable(f"it computes with a tensor of {dtype}")
            name = str(len(self.constants))
            self.constants[node] = Value(CONSTANT, WHOLE, tuple(value.shape), name=name)
        return self.constants[node]

    def has_rows(self, node: fx.Node) -> bool:
        """True if a node has a row for each node or edge of a group."""
        value = node.meta.get("val")
        parts = value if isinstance(value, (list, tuple)) else [value]
        return any(isinstance(part, Tensor) and self._dim(part) is not None for part in parts)

    def row_dim(self, node: fx.Node) -> int | None:
        """The dimension that counts rows; None for a tensor without rows."""
        return self._dim(node.meta["val"])

    def _dim(self, value: Tensor) -> int | None:
        return find_row_dim(self._signature, self._trace.sizes, value)

    def row_shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of a row."""
        value = node.meta["val"]
        return tuple(_without(value.shape, self._dim(value) or 0))

    def space(self, node: fx.Node) -> str:
        """The kind of rows that a node has: of NODES or of EDGES."""
        value = node.meta["val"]
        dim = self._dim(value)
        size = None if dim is None else value.shape[dim]
        if size == self._nodes:
            return NODES
        if dim is not None and size == self._edges:
            return EDGES
        raise Untraceable("it makes a tensor without a row for each node or edge")

    def axis(self, node: Any, dim: Any) -> int:
        """The dimension that an operation names, counted without the dimension of the rows."""
        counted: int = dim % node.meta["val"].dim()
        of_rows = self.row_dim(node) or 0
        if counted == of_rows:
            raise Untraceable("it works across the nodes of a group")
        return counted - (counted > of_rows)

    def require_dtype(self, node: fx.Node) -> None:
        """Raises if a node has other numbers than the states."""
        dtype = node.meta["val"].dtype
        if dtype != self._signature.dtype:
            raise Untraceable(f"it reads a tensor of {dtype} among ones of {self._signature.dtype}")

    def shaped(self, node: fx.Node, view: View) -> View:
        """A view, checked against the shape that torch recorded."""
        shape = self.row_shape(node)
        if self.space(node) != view.space:
            view = self.to.in_space(view, self.space(node))
        if view.shape != shape:
            raise Untraceable(f"{node.target} has the shape {list(view.shape)}, not {list(shape)}")
        return view

    def arranged(self, node: fx.Node, source: Any) -> View:
        """A view that torch describes by strides: slices, reshapes, stretched dimensions."""
        tensor, packet = node.meta["val"], getattr(node.target, "overloadpacket", None)
        space, shape, dim = self.space(node), self.row_shape(node), self._dim(tensor) or 0
        if source in self.fixed:
            if packet != aten.expand or dim != 0:
                raise Untraceable("it makes rows of a parameter")
            return self.to.add(COPY, space, shape, [self.of(source).expanded(shape)])
        if tensor.dtype != source.meta["val"].dtype:
            raise Untraceable(f"it takes numbers for {tensor.dtype}")
        whole = self._whole_of(source)
        if packet == aten.detach and self._signature.differentiate and node.users:
            whole = self.to.add(DETACH, whole.space, whole.shape, [whole])
        self._whole[node] = whole
        size, row = math.prod(whole.shape), tensor.stride(dim)
        count = self._nodes if whole.space == NODES else self._edges
        if size and row * tensor.shape[dim] != count * size:
            raise Untraceable("it works across the nodes of a group")
        offset = tensor.storage_offset()
        steps = tuple(_without(tensor.stride(), dim))
        return View(whole.value, space, shape, steps, offset, row if size else 0)

    def _whole_of(self, source: fx.Node) -> View:
        """All of what a node looks at, contiguous: from there the strides of views count."""
        if source not in self._whole:
            view = self.of(source, anywhere=True)
            if not source.meta["val"].movedim(self.row_dim(source) or 0, 0).is_contiguous():
                raise Untraceable("it takes a view of what it has changed in place")
            self._whole[source] = view if view.is_all else self.to.copy(view)
        return self._whole[source]


def _without(sizes: Sequence[int], dim: int) -> list[int]:
    return [size for place, size in enumerate(sizes) if place != dim]


def _without_row(view: View, from_right: int) -> View:
    """A constant without the dimension that torch stretches over the rows, if it has that one."""
    dim = len(view.shape) - from_right
    if dim < 0:
        return view
    if view.shape[dim] != 1:
        raise Untraceable("it works across the nodes of a group")
    return view.arranged(_without(view.shape, dim), _without(view.steps, dim))
