"""The operations of torch on rows that are more than elementwise, as values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.node_views import NodeViews
from graphfold.batching.compiler.operations import Term
from graphfold.batching.compiler.values import (
    COPY,
    EDGES,
    NODES,
    WHOLE,
    Operation,
    Untraceable,
    View,
)

aten = torch.ops.aten


class RowOperations:
    """A method for each operation, named as in torch.

    Args:
        nodes: what the nodes are that an operation is given.
        in_rounds: whether the cell runs in rounds, where a group is all nodes of a type.

    Attributes:
        normalisations: the names of the mean, the variance and the share of rows that count, of
            each group that is normalised and keeps running statistics; the nodes of these, and
            their momentum.
        real: what is 0 for nodes that statistics do not count; None if they count all.
    """

    def __init__(self, nodes: NodeViews, in_rounds: bool) -> None:
        self.normalisations: list[tuple[str, str, str | None, list[fx.Node], float]] = []
        self.real: View | None = None
        self._nodes, self._to, self._in_rounds = nodes, nodes.to, in_rounds
        self._weighted: set[str] = set()  # fields of which there is a weighted sum

    def cat(self, node: fx.Node) -> View:
        """Rows side by side."""
        # What has no row, torch leaves out.
        num_dims = node.meta["val"].dim()
        parts: Any = node.args[0]
        parts = [part for part in parts if part.meta["val"].dim() == num_dims]
        if len({self._nodes.row_dim(part) for part in parts}) > 1:
            raise Untraceable("it joins rows with a parameter, or with rows of another dimension")
        views = [self._nodes.of(part, anywhere=True) for part in parts]
        dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        at, space = self._nodes.axis(node, dim), self._nodes.space(node)
        if any(view.space != space for view in views):
            raise Untraceable("it joins rows with a parameter")
        return self._to.add(op.CAT, space, self._nodes.row_shape(node), views, number=at)

    def mm(self, node: fx.Node) -> View:
        """x @ weight; the weight depends on parameters alone."""
        x, weight = node.args
        return self._product(node, x, weight)

    def addmm(self, node: fx.Node) -> View:
        """bias + x @ weight."""
        bias, x, weight = node.args
        return self._product(node, x, weight, bias)

    def _product(self, node: fx.Node, x: Any, weight: Any, bias: Any = None) -> View:
        of, fixed, shape = self._nodes.of, self._nodes.fixed, node.meta["val"].shape[1:]
        if node.kwargs or weight not in fixed or (bias is not None and bias not in fixed):
            raise Untraceable(f"it multiplies by what is no parameter ({node.target})")
        rows = of(x)
        if rows.space == WHOLE or len(rows.shape) != 1:
            raise Untraceable("it multiplies a parameter by rows")
        # A transposed weight is packed as it lies: autograd need not transpose its gradient back.
        is_transposed = weight.op == "call_function" and weight.target is aten.t.default
        inputs = [self._to.contiguous(rows), of(weight.args[0] if is_transposed else weight)]
        if bias is not None:
            inputs.append(of(bias))
            if inputs[2].shape != shape:
                raise Untraceable("the bias of a product has not one number for each column")
        operation = op.MULTIPLY_TRANSPOSED if is_transposed else op.MULTIPLY
        return self._to.add(operation, rows.space, shape, inputs)

    def sum(self, node: fx.Node) -> View:
        return self._reduce(node, op.REDUCE_SUM)

    def amax(self, node: fx.Node) -> View:
        return self._reduce(node, op.REDUCE_MAX)

    def mean(self, node: fx.Node) -> View:
        total = self._reduce(node, op.REDUCE_SUM)
        count = math.prod(self._nodes.of(node.args[0], anywhere=True).shape)
        return self._to.apply(op.MUL, total, math.prod(total.shape) / max(count, 1))

    def _reduce(self, node: fx.Node, operation: Operation) -> View:
        """A sum or maximum over some dimensions of a row."""
        view = self._nodes.of(node.args[0], anywhere=True)
        dims: Any = node.args[1] if len(node.args) > 1 else ()
        if not dims:
            raise Untraceable("it works across the nodes of a group")
        dims = [self._nodes.axis(node.args[0], dim) for dim in dims]
        shape = [1 if dim in dims else size for dim, size in enumerate(view.shape)]
        reduced = self._to.add(operation, view.space, shape, [view])
        return self._to.reshape(reduced, self._nodes.row_shape(node))

    def native_batch_norm(self, node: fx.Node) -> list[View | None]:
        """Batch normalisation by running statistics, or by all nodes of a type in a round.

        Ioffe and Szegedy (2015), https://arxiv.org/abs/1502.03167, algorithm 1.
        """
        args: Any = node.args
        x, weight, bias, mean, variance, is_training, momentum, epsilon = args
        to, given = self._to, self._nodes.of(x)
        if len(given.shape) != 1:
            raise Untraceable("it normalises more than the columns of a row")
        if is_training or mean is None:
            if not self._in_rounds:
                raise Untraceable("it normalises over the nodes of a group (BatchNorm)")
            share = None if self.real is None else to.mean_of_group(self.real)
            own_mean = self._mean(given, share)
            centred = Term(to, given) - Term(to, own_mean)
            spread = self._mean((centred * centred).view, share)
            if mean is not None:
                own_share = None if share is None else share.value.name
                names = own_mean.value.name, spread.value.name, own_share
                self.normalisations.append((*names, [mean, variance], momentum))
            scale = (Term(to, spread) + epsilon).do(op.RSQRT)
            result = Term(to, given).do(op.STANDARDISE, Term(to, own_mean), scale)
            result.view.value.number = None if share is None else (self.real, share)
        else:
            spread = to.add(COPY, given.space, given.shape, [self._nodes.of(variance)])
            scale = (Term(to, spread) + epsilon).do(op.RSQRT)
            result = (Term(to, given) - Term(to, self._nodes.of(mean))) * scale
        return [self._scaled(result, weight, bias), None, None]

    def _mean(self, view: View, share: View | None) -> View:
        """The mean over the nodes of a group that count, which are a share of all."""
        if share is None or self.real is None:
            return self._to.mean_of_group(view)
        counted = (Term(self._to, view) * Term(self._to, self.real)).view
        return (Term(self._to, self._to.mean_of_group(counted)) / Term(self._to, share)).view

    def _scaled(self, term: Term, weight: Any, bias: Any) -> View:
        """Multiplies by a weight and adds a bias, if they are given."""
        of, to = self._nodes.of, self._to
        term = term if weight is None else term * Term(to, of(weight))
        return (term if bias is None else term + Term(to, of(bias))).view

    def sum_edges(self, node: fx.Node) -> View:
        """A sum over edges; of children times a number each, no row is made for an edge."""
        view = self._nodes.of(node.args[0])
        if view.value.operation is op.MUL and view.is_all:
            for rows, weight in (view.value.inputs, view.value.inputs[::-1]):
                field = rows.value.name
                is_fetched = rows.value.operation is op.GATHER and rows.is_all
                is_number = weight.space == EDGES and not any(weight.steps)
                if is_fetched and is_number and field not in self._weighted:
                    self._weighted.add(field)
                    one = self._to.contiguous(weight.arranged((1,), (1,)))
                    return self._to.add(op.GATHER_WEIGHTED, NODES, view.shape, [one], field)
        return self._of_edges(node, op.SUM_EDGES, NODES)

    def max_edges(self, node: fx.Node) -> View:
        return self._of_edges(node, op.MAX_EDGES, NODES)

    def expand_nodes(self, node: fx.Node) -> View:
        return self._of_edges(node, op.EXPAND, EDGES)

    def _of_edges(self, node: fx.Node, operation: Operation, space: str) -> View:
        view = self._nodes.of(node.args[0])
        if self._to.arity == 1:  # of one child the sum and the maximum are the child
            return view
        view = self._to.contiguous(self._to.in_space(view, EDGES if space == NODES else NODES))
        return self._to.add(operation, space, view.shape, [view])


def row_operations(operations: RowOperations) -> dict[Any, Callable[[fx.Node], Any]]:
    """Operation of torch, or of a trace -> what writes it down."""
    named = {name: getattr(operations, name) for name in vars(RowOperations) if name[0] != "_"}
    of_edges = {
        getattr(torch.ops.graphfold, name): named.pop(name)
        for name in ("sum_edges", "max_edges", "expand_nodes")
    }
    own = {getattr(aten, name): write for name, write in named.items()}
    return {**own, **of_edges}
