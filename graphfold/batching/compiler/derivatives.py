"""Derivatives: from the values of forward to the values of backward.

A rule gives the cotangents of the inputs of an operation from that of its result. An input is a
view: the cotangent of a value is the sum of those of its views, each at its place; where a view
stretches a dimension, the numbers along it are added up, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPY,
    EDGES,
    NODES,
    WHOLE,
    Operation,
    Value,
    ValueBuilder,
    View,
)


@dataclass
class Gradients:
    """The computation of backward.

    Args:
        values: in the order in which they are computed; the gradients of tables, and of constants
            that are no weights, are added up there.
        sources: (operation, name) of what else the cell reads -> its gradient.
        products: products whose weight gets a gradient -> the cotangent of the product. The
            gradient of a weight [k, m] is x.T @ cotangent, over all rows of the pass at once; if
            the weight is transposed, [m, k], then so is its gradient.
    """

    values: list[Value]
    sources: dict[tuple[Operation, str], View] = field(default_factory=dict)
    products: dict[Value, View] = field(default_factory=dict)


def differentiate(
    values: list[Value],
    outputs: Mapping[str, View],
    needed: Callable[[Value], bool],
    arity: int | None,
) -> Gradients:
    """The gradients of a cell.

    Args:
        values: of its forward, in order.
        outputs: field -> the view that is its state.
        needed: whether the gradient of a source or constant is wanted.
        arity: the number of children, or None if it differs.
    """
    return _Backward(values, outputs, needed, arity).run()


class _Backward:
    """Goes through the values of forward in reverse; rules see it as their `Backward`."""

    def __init__(
        self,
        values: list[Value],
        outputs: Mapping[str, View],
        needed: Callable[[Value], bool],
        arity: int | None,
    ) -> None:
        self._forward, self._outputs, self._needed = values, outputs, needed
        self.to = ValueBuilder(arity, "backward")
        self._cotangents: dict[Value, list[tuple[View, View]]] = {}
        self._found = Gradients(self.to.values)
        self._active: set[Value] = set()  # through which gradients go
        for value in values:
            is_source = value.operation.is_read and needed(value)
            if is_source or (value.operation.rule and any(map(self.wants, value.inputs))):
                self._active.add(value)

    def run(self) -> Gradients:
        for name, view in self._outputs.items():
            if view.value in self._active:
                seed = self.to.add(op.PULL, NODES, view.shape, name=name)
                self._add(view, seed)
        for value in reversed(self._forward):
            if value not in self._active or value not in self._cotangents:
                continue
            grad = self._assembled(value)
            if value.operation is op.LOOK_UP and self._needed(value):
                self.to.add(op.LOOK_UP_ADD, EDGES, grad.shape, [grad], value.name)
            elif value.operation.is_read and self._needed(value):
                self._found.sources[value.operation, value.name] = grad
            rule = value.operation.rule
            for view, cotangent in () if rule is None else rule(self, value, grad):
                self._add(view, cotangent)
        return self._found

    def _add(self, view: View, cotangent: View) -> None:
        value = view.value
        if not self.wants(view):
            return
        if value.operation is CONSTANT:
            space, shape = cotangent.space, cotangent.shape
            self.to.add(op.ACCUMULATE, space, shape, [cotangent], value.name, view.expanded(shape))
        else:
            self._cotangents.setdefault(value, []).append((view, cotangent))

    def wants(self, view: View) -> bool:
        value = view.value
        return value in self._active or (value.operation is CONSTANT and self._needed(value))

    def _assembled(self, value: Value) -> View:
        """The cotangent of a value: the sum of the cotangents of its views."""
        parts = self._cotangents[value]
        if len(parts) == 1:
            view, grad = parts[0]
            if view.is_all and not any(view.stretched) and grad.shape == view.shape:
                return self._as_value(self.to.contiguous(grad), value)
        made = self.to.add(op.ASSEMBLE, value.space, value.shape, [grad for _, grad in parts])
        made.value.number = tuple(replace(v, value=made.value) for v, _ in parts)  # where each goes
        return made

    def _as_value(self, grad: View, value: Value) -> View:
        """The gradient of all of a value, in its own space and shape."""
        if grad.space == value.space:
            return self.to.reshape(grad, value.shape)
        if value.space == NODES:
            return self.to.reshape(self.to.in_space(grad, NODES), value.shape)
        by_edge = self.to.reshape(grad, (self.to.arity or 1, *value.shape))
        return self.to.in_space(by_edge, EDGES)

    # What follows is called by rules, see `operations.Backward`.

    def product(self, value: Value, grad: View) -> None:
        _, weight, *bias = value.inputs
        if self.wants(weight):
            self._found.products[value] = self.to.contiguous(grad)
        elif bias:
            self._add(bias[0], grad)

    def rows(self, view: View, like: Value) -> View:
        if view.space != WHOLE:
            return view
        return self.to.add(COPY, like.space, like.shape, [view.expanded(like.shape)])
