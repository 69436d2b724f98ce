"""Lowering: from the graph of a traced cell to the values that programs compute."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from graphfold.batching.cell import REAL, Cell
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.elementwise import elementwise
from graphfold.batching.compiler.node_views import NodeViews
from graphfold.batching.compiler.recorder import gives_views, shares_memory
from graphfold.batching.compiler.row_operations import RowOperations, row_operations
from graphfold.batching.compiler.trace import Signature, Trace
from graphfold.batching.compiler.values import (
    EDGES,
    GIVEN,
    NODES,
    Operation,
    Untraceable,
    Value,
    View,
    reachable,
)

aten = torch.ops.aten

#: Operations that give what they are given.
_HANDLES = (aten.clone, aten.lift_fresh_copy, aten._to_copy)
#: Where values are filled with one number: the number, or the name of its argument.
_FILLS: Mapping[Any, float | str] = {
    getattr(aten, form.format(name)): number
    for name, number in (("zeros", 0), ("ones", 1), ("full", "fill_value"))
    for form in ("{}", "{}_like", "new_{}")
}

#: The options of elementwise operations.
_OPTIONS = ("alpha", "value", "min", "max", "rounding_mode", "approximate")
#: How a cell reads what an argument of its graph stands for -> the value that it is.
_ARGUMENTS: Mapping[str, tuple[Operation, str]] = {
    "x": (op.X, NODES),
    "edge": (op.EDGE, EDGES),
    "previous": (op.PREVIOUS, NODES),
    "rows": (op.GATHER, EDGES),
    "sum": (op.GATHER_SUM, NODES),
    "count": (op.COUNT_EDGES, NODES),
    **dict.fromkeys(("child_count", "is_self", "position", "relation"), (op.INTEGER, EDGES)),
}


@dataclass(frozen=True, eq=False)
class TensorOf:
    """A tensor that a cell reads.

    Args:
        path: the names of the modules on the way to it.
        name: of the parameter or buffer.
        held: the tensor itself if it is neither.
    """

    path: tuple[str, ...] = ()
    name: str = ""
    held: Tensor | None = None

    def find(self, cell: nn.Module) -> Tensor:
        """The tensor that is there now."""
        if self.held is not None:
            return self.held
        module: Any = cell
        for name in self.path:
            module = module._modules[name]
        found = module._parameters.get(self.name)
        return module._buffers[self.name] if found is None else found  # type: ignore[no-any-return]


def find_tensors(cell: nn.Module, tensors: Sequence[Tensor]) -> list[TensorOf]:
    """The places where a cell keeps some tensors.

    Raises:
        Untraceable: if one requires a gradient and is no parameter of the cell.
    """
    names = {
        id(tensor): name
        for named in (cell.named_buffers, cell.named_parameters)
        for name, tensor in named(remove_duplicate=False)
    }
    found = []
    for tensor in tensors:
        *path, name = names.get(id(tensor), "").split(".")
        if name:
            found.append(TensorOf(tuple(path), name))
        elif tensor.requires_grad:
            raise Untraceable(
                f"it reads a tensor of shape {list(tensor.shape)} that requires a gradient and is "
                "neither an argument nor a registered parameter"
            )
        else:
            found.append(TensorOf(held=tensor))
    return found


@dataclass(frozen=True)
class RunningStatistics:
    """The running statistics of one `torch.nn.BatchNorm1d`.

    Args:
        mean: the name of the mean over a group.
        variance: the name of the mean of squares, from which the former has been taken.
        share: the name of the share of rows that count; None if all do.
        running: where the cell keeps a mean of means, and one of unbiased variances.
        momentum: how much the last counts.
    """

    mean: str
    variance: str
    share: str | None
    running: Sequence[TensorOf]
    momentum: float

    def update(
        self, cell: nn.Module, mean: Tensor, variance: Tensor, num_rows: int | Tensor
    ) -> None:
        """Lets the last batch count; its mean and variance are of that many rows."""
        unbiased = variance * (num_rows / (num_rows - 1))
        for running, last in zip(self.running, (mean, unbiased), strict=True):
            running.find(cell).lerp_(last, self.momentum)


@dataclass(frozen=True)
class Lowered:
    """The computation of a cell.

    Args:
        values: in the order in which they are computed.
        outputs: field -> the view that is its state.
        constants: what depends on parameters alone, in the order of `fixed`'s results.
        fixed: (tensors of the cell ..., shared tensors ...) -> the constants, by torch.
        tensors: where the tensors of the cell are that `fixed` takes.
        shared: the names of the shared tensors that it takes.
        learned: the numbers of the constants that depend on what requires a gradient.
        running: what is kept of the means over groups.
        counters: tensors of the cell that count its calls, each with what a call adds.
        assumes_more: whether it holds only for groups of more than one node.
    """

    values: list[Value]
    outputs: dict[str, View]
    constants: list[Value]
    fixed: Callable[..., Sequence[Tensor]]
    tensors: tuple[TensorOf, ...]
    shared: tuple[str, ...]
    learned: frozenset[int]
    running: tuple[RunningStatistics, ...] = ()
    counters: tuple[tuple[TensorOf, int], ...] = ()
    assumes_more: bool = False


def lower(cell: Cell, trace: Trace, signature: Signature) -> Lowered:
    """The values of a traced cell.

    Raises:
        Untraceable: if it does something that native code does not.
    """
    lowering = _Lowering(trace, signature)
    outputs = dict(zip(cell.fields, lowering.run(), strict=True))
    return lowering.finish(cell, outputs)


class _Lowering:
    """Goes through a graph node by node."""

    def __init__(self, trace: Trace, signature: Signature) -> None:
        self._trace, self._signature = trace, signature
        self._nodes = NodeViews(trace, signature)
        self._to = self._nodes.to
        self._changed: set[fx.Node] = set()
        self._argument: dict[fx.Node, str] = {}
        self._learned_shared = {name for name, *_, wanted in signature.shared if wanted}
        self._elementwise = elementwise(self._to)
        self._rows = RowOperations(self._nodes, signature.in_rounds)
        self._of_rows = row_operations(self._rows)

    def run(self) -> list[View]:
        """The views that the graph returns."""
        for node in self._trace.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise Untraceable(
                    "it draws random numbers; what is drawn in `before`, such as the masks of "
                    f"dropout, does not depend on the schedule ({_described(node)})"
                )
        names = iter(self._trace.arguments)
        for node in self._trace.graph.nodes:
            if node.op == "placeholder":
                self._place(node, *next(names))
            elif node.op == "get_attr":
                self._nodes.fixed[node] = None
            elif node.op == "call_function":
                try:
                    self._nodes.note(node, self._call(node))
                except Untraceable as reason:
                    raise Untraceable(f"{reason} ({_described(node)})") from None
        (returned,) = self._trace.graph.output_node().args
        views: list[View] = []
        for node in returned:  # type: ignore[union-attr]
            view = self._output(node)
            value = view.value
            is_own = view.is_all and value.space == NODES and value.operation.kind != GIVEN
            if not is_own or any(value is other.value for other in views):
                view = self._to.copy(view)
            views.append(view)
        return views

    def finish(self, cell: Cell, outputs: dict[str, View]) -> Lowered:
        """The values, with the code of the constants."""
        constants, held = self._nodes.constants, self._trace.constants
        used = _ancestors(constants)
        tensors, shared, calls = (
            [node for node in self._nodes.fixed if node.op == kind and node in used]
            for kind in ("get_attr", "placeholder", "call_function")
        )
        learned = {node for node in tensors if held[str(node.target)].requires_grad}
        learned |= {node for node in shared if self._argument[node] in self._learned_shared}

        def find(nodes: Iterable[fx.Node]) -> list[TensorOf]:
            return find_tensors(cell, [held[str(node.target)] for node in nodes])

        counters = find_tensors(cell, [counter for counter, _ in self._trace.counted])
        added = [count for _, count in self._trace.counted]
        return Lowered(
            values=self._to.values,
            outputs=outputs,
            constants=list(constants.values()),
            fixed=_function([*tensors, *shared], calls, constants),
            tensors=tuple(find(tensors)),
            shared=tuple(self._argument[node] for node in shared),
            learned=frozenset(
                number
                for number, node in enumerate(constants)
                if not learned.isdisjoint(_ancestors([node]))
            ),
            running=tuple(
                RunningStatistics(mean, variance, share, find(running), momentum)
                for mean, variance, share, running, momentum in self._rows.normalisations
            ),
            counters=tuple(zip(counters, added, strict=True)),
            assumes_more=self._trace.assumes_more,
        )

    def _place(self, node: fx.Node, how: str, name: str) -> None:
        """Notes what an argument of the graph stands for."""
        if how == "shared":
            self._nodes.fixed[node] = None
            self._argument[node] = name
        elif how in _ARGUMENTS and (node.users or name == REAL):
            operation, space = _ARGUMENTS[how]
            if how == "edge" and self._signature.has_tables:
                operation = op.LOOK_UP
            if how == "previous" and self._signature.in_rounds:
                operation = op.GATHER_PREVIOUS
            if how in ("x", "edge", "previous"):
                self._nodes.require_dtype(node)
            name = how if operation is op.INTEGER else name
            shape = node.meta["val"].shape[1:]
            view = self._to.add(operation, space, shape, name=name)
            self._nodes.note(node, view)
            if (how, name) == ("x", REAL):
                real = op.Term(self._to, view)
                self._rows.real = (real * real).view  # trials give it numbers of both signs

    def _call(self, node: fx.Node) -> Any:
        inputs = node.all_input_nodes
        if any(source in self._changed for source in inputs):
            raise Untraceable("it reads a tensor again that it has changed in place")
        if not self._nodes.has_rows(node) and all(source in self._nodes.fixed for source in inputs):
            self._nodes.fixed[node] = None
            return None
        made: Any = node.args[0] if node.target is operator.getitem else node
        if gives_views(made.target):
            is_read = node.users and isinstance(node.meta["val"], Tensor)  # autograd detaches, too
            return self._nodes.arranged(node, made.args[0]) if is_read else None
        if made is not node:
            return self._nodes.part(made, node.args[1])  # type: ignore[arg-type]
        packet = self._packet(node)
        if packet in _HANDLES:
            return self._handle(node)
        if packet in _FILLS:
            return self._fill(node, _FILLS[packet])
        if packet in self._of_rows:
            return self._of_rows[packet](node)
        if packet not in self._elementwise:
            raise Untraceable(f"it calls {node.target}, which native code does not have")
        operands = [self._nodes.operand(argument, node) for argument in node.args]
        options = {k: self._nodes.operand(v, node) for k, v in node.kwargs.items() if k in _OPTIONS}
        return self._nodes.shaped(node, self._elementwise[packet](*operands, **options))

    def _packet(self, node: fx.Node) -> Any:
        """The operation, of one that changes its first argument the one that does not."""
        packet = getattr(node.target, "overloadpacket", None)
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return packet
        name = getattr(packet, "__name__", "")
        plain = getattr(aten, name.removesuffix("_"), None)
        if plain is None or not name.endswith("_"):
            raise Untraceable(f"it calls {node.target}, which changes a tensor in place")
        self._refuse_seen_change(node.args[0])  # type: ignore[arg-type]
        return plain

    def _refuse_seen_change(self, node: fx.Node) -> None:
        """A change in place is one to a new value, unless memory of something else is changed."""
        if node.op != "call_function" or _may_share_memory(node):
            raise Untraceable("it changes a tensor in place that something else may read")
        if any(_may_share_memory(user) for user in node.users):
            raise Untraceable("it changes a tensor in place of which there are views")
        self._changed.add(node)

    def _output(self, node: Any) -> View:
        if not isinstance(node, fx.Node) or self._nodes.space(node) != NODES:
            raise Untraceable("it returns something else than a row for each node")
        if node in self._nodes.fixed:
            raise Untraceable("it returns the same for all nodes")
        self._nodes.require_dtype(node)
        return self._nodes.of(node)

    def _handle(self, node: fx.Node) -> View:
        view, value = self._nodes.of(node.args[0], anywhere=True), node.meta["val"]
        source: Any = node.args[0]
        is_cut = source.meta["val"].is_floating_point() and not value.is_floating_point()
        if is_cut or value.dtype not in (self._signature.dtype, torch.int64, torch.bool):
            raise Untraceable(f"it converts to {value.dtype}")
        return view

    def _fill(self, node: fx.Node, number: float | str) -> View:
        if number == "fill_value":
            place = {aten.full_like: 1, aten.full: 1, aten.new_full: 2}[self._packet(node)]
            number = node.args[place]  # type: ignore[assignment]
        space, shape = self._nodes.space(node), self._nodes.row_shape(node)
        filled = self._to.number(float(number)).expanded(shape)
        return self._to.add(op.FILL, space, shape, [filled])


def _function(
    arguments: Iterable[fx.Node], calls: Iterable[fx.Node], results: Iterable[fx.Node]
) -> Callable[..., Sequence[Tensor]]:
    """A part of a graph as a function."""
    graph, copies = fx.Graph(), {}
    for node in arguments:
        copies[node] = graph.placeholder(node.name)
    for node in calls:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta.clear()  # which would keep the tensors of the trace alive
    graph.output([copies[node] for node in results])
    return fx.GraphModule(torch.nn.Module(), graph).forward


def _may_share_memory(node: fx.Node) -> bool:
    """True if a node may have the memory of what it is computed from."""
    if node.target is operator.getitem:
        return _may_share_memory(node.all_input_nodes[0])
    return shares_memory(node.target)


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes and all that they are computed from."""
    return reachable(nodes, lambda node: node.all_input_nodes)


def _described(node: fx.Node) -> str:
    """The operation of a node and the line of the cell that calls it, for messages."""
    packet = getattr(node.target, "overloadpacket", node.target)
    name, place = getattr(packet, "__name__", str(packet)), node.meta.get("place")
    return f"{name} in {place}" if place else name
