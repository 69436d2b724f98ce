"""NodeViews: what the nodes of a traced graph are, as views of values or as constants."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.compiler.trace import Signature, Trace
from graphfold.batching.compiler.values import (
    CONSTANT,
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
        self._views[node] = found

    def part(self, node: fx.Node, number: int) -> Any:
        """One of the views that a node gives."""
        return self._views[node][number]

    def of(self, node: Any) -> View:
        """The view of a node; a constant if it depends on parameters alone."""
        if node in self.fixed:
            return self._constant(node).view
        view = self._views.get(node)
        if not isinstance(view, View):
            raise Untraceable("it reads what native code does not have, such as `children.parent`")
        return view

    def operand(self, argument: Any) -> Any:
        """The view of a node, or a number."""
        if isinstance(argument, fx.Node):
            return self.of(argument)
        if isinstance(argument, (bool, int)):
            return float(argument)
        return argument

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
            number = len(self.constants)
            self.constants[node] = Value(CONSTANT, WHOLE, tuple(value.shape), (), "", number)
            self.constants[node].name = str(number)
        return self.constants[node]

    def has_rows(self, node: fx.Node) -> bool:
        """True if a node has a row for each node or edge of a group."""
        value = node.meta.get("val")
        parts = value if isinstance(value, (list, tuple)) else [value]
        known = (self._nodes, self._edges, self._nodes + 1)
        return any(
            isinstance(part, Tensor) and part.dim() > 0 and part.shape[0] in known for part in parts
        )

    def space(self, node: fx.Node) -> str:
        """The kind of rows that a node has: of NODES or of EDGES."""
        value = node.meta["val"]
        if value.dim() and value.shape[0] == self._nodes:
            return NODES
        if value.dim() and value.shape[0] == self._edges:
            return EDGES
        raise Untraceable("it makes a tensor without a row for each node or edge")

    def axis(self, node: Any, dim: Any) -> int:
        """A dimension of a node that an operation names, counted after the rows."""
        counted: int = dim % node.meta["val"].dim()
        if counted == 0:
            raise Untraceable("it works across the nodes of a group")
        return counted - 1

    def require_dtype(self, node: fx.Node) -> None:
        """Raises if a node has other numbers than the states."""
        dtype = node.meta["val"].dtype
        if dtype != self._signature.dtype:
            raise Untraceable(f"it reads a tensor of {dtype} among ones of {self._signature.dtype}")

    def shaped(self, node: fx.Node, view: View) -> View:
        """A view, checked against what torch says of the node."""
        shape = tuple(node.meta["val"].shape[1:])
        if self.space(node) != view.space:
            view = self.to.in_space(view, self.space(node))
        if view.shape != shape:
            raise Untraceable(f"{node.target} has the shape {list(view.shape)}, not {list(shape)}")
        return view

    def arranged(self, node: fx.Node, source: Any) -> View:
        """A view that torch describes by strides: slices, reshapes, stretched dimensions."""
        tensor, packet = node.meta["val"], getattr(node.target, "overloadpacket", None)
        space, shape = self.space(node), tuple(tensor.shape[1:])
        if source in self.fixed:
            if packet != aten.expand:
                raise Untraceable("it makes rows of a parameter")
            return self.to.add("copy", space, shape, [self.of(source).expanded(shape)])
        if tensor.dtype != source.meta["val"].dtype:
            raise Untraceable(f"it takes numbers for {tensor.dtype}")
        whole = self._whole_of(source)
        if packet == aten.detach and self._signature.differentiate and node.users:
            whole = self.to.add("detach", whole.space, whole.shape, [whole])
        self._whole[node] = whole
        size, row = math.prod(whole.shape), tensor.stride(0)
        count = self._nodes if whole.space == NODES else self._edges
        if size and row * tensor.shape[0] != count * size:
            raise Untraceable("it works across the nodes of a group")
        offset = tensor.storage_offset()
        return View(whole.value, space, shape, tensor.stride()[1:], offset, row if size else 0)

    def _whole_of(self, source: fx.Node) -> View:
        """All of what a node looks at, contiguous: from there the strides of views count."""
        if source not in self._whole:
            view = self.of(source)
            if not source.meta["val"].is_contiguous():
                raise Untraceable("it takes a view of what it has changed in place")
            self._whole[source] = view if view.is_all else self.to.copy(view)
        return self._whole[source]
