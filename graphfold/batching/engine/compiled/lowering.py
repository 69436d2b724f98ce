"""Lowering: from the graph of a traced cell to the values that native code computes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.cell import Cell
from graphfold.batching.engine.compiled.elementwise import elementwise
from graphfold.batching.engine.compiled.recorder import gives_views, shares_memory
from graphfold.batching.engine.compiled.tensors import RunningStatistics, TensorOf, find_tensors
from graphfold.batching.engine.compiled.trace import Signature, Trace
from graphfold.batching.engine.compiled.values import (
    CONSTANT,
    EDGE,
    EDGES,
    NODES,
    PREVIOUS,
    SOURCES,
    WHOLE,
    Untraceable,
    Value,
    ValueBuilder,
    View,
    X,
)

aten = torch.ops.aten

#: Operations that give what they are given.
_HANDLES = (aten.clone, aten.lift_fresh_copy, aten._to_copy)
#: Where values are filled with one number: the number, or the name of its argument.
_FILLS: Mapping[Any, float | str] = {
    aten.zeros_like: 0,
    aten.ones_like: 1,
    aten.full_like: "fill_value",
    aten.zeros: 0,
    aten.ones: 1,
    aten.full: "fill_value",
    aten.new_zeros: 0,
    aten.new_ones: 1,
    aten.new_full: "fill_value",
}


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
        self._nodes, self._edges = trace.sizes.nodes, signature.count_edges(trace.sizes)
        self.to = ValueBuilder(signature.arity)
        self._views: dict[fx.Node, Any] = {}
        self._whole: dict[fx.Node, View] = {}  # what a node looks at, contiguous
        self._fixed: dict[fx.Node, None] = {}  # nodes that depend on parameters alone
        self._constants: dict[fx.Node, Value] = {}
        self._changed: set[fx.Node] = set()
        self._argument: dict[fx.Node, str] = {}
        self._weighted: set[str] = set()  # fields of which there is a weighted sum
        self._running: list[tuple[Value, Value, fx.Node, fx.Node, float]] = []
        self._learned_shared = {name for name, *_, wanted in signature.shared if wanted}
        self._elementwise = elementwise(self.to)
        self._others: dict[Any, Callable[[fx.Node], Any]] = {
            aten.cat: self._cat,
            aten.stack: self._cat,
            aten.mm: self._product,
            aten.addmm: self._product,
            aten.sum: lambda n: self._reduce(n, "reduce_sum"),
            aten.mean: self._mean,
            aten.amax: lambda n: self._reduce(n, "reduce_max"),
            aten._softmax: self._softmax,
            aten.native_layer_norm: self._layer_norm,
            aten.native_batch_norm: self._batch_norm,
            aten.log_sigmoid_forward: self._log_sigmoid,
            aten.bitwise_not: lambda n: self.to.apply("logical_not", *self._operands(n)),
            aten.bitwise_and: lambda n: self.to.apply("logical_and", *self._operands(n)),
            aten.bitwise_or: lambda n: self.to.apply("logical_or", *self._operands(n)),
            torch.ops.graphfold.sum_edges: self._sum_edges,
            torch.ops.graphfold.max_edges: lambda n: self._of_edges(n, "max_edges", NODES),
            torch.ops.graphfold.expand_nodes: lambda n: self._of_edges(n, "expand", EDGES),
        }

    def run(self) -> list[View]:
        """The views that the graph returns."""
        for node in self._trace.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise Untraceable(
                    "it draws random numbers; what is drawn in `before`, such as the masks of "
                    "dropout, does not depend on the schedule"
                )
        names = iter(self._trace.arguments)
        for node in self._trace.graph.nodes:
            if node.op == "placeholder":
                self._place(node, *next(names))
            elif node.op == "get_attr":
                self._fixed[node] = None
            elif node.op == "call_function":
                self._views[node] = self._call(node)
        (returned,) = self._trace.graph.output_node().args
        views: list[View] = []
        for node in returned:  # type: ignore[union-attr]
            view = self._output(node)
            value = view.value
            is_own = view.is_all and value.space == NODES and value.operation not in SOURCES
            if not is_own or any(value is other.value for other in views):
                view = self.to.copy(view)
            views.append(view)
        return views

    def finish(self, cell: Cell, outputs: dict[str, View]) -> Lowered:
        """The values, with the code of the constants."""
        graph, copies = fx.Graph(), {}
        used = _ancestors(self._constants)
        tensors = [node for node in self._fixed if node.op == "get_attr" and node in used]
        shared = [node for node in self._fixed if node.op == "placeholder" and node in used]
        for node in (*tensors, *shared):
            copies[node] = graph.placeholder(node.name)
        for node in self._fixed:
            if node in used and node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in self._constants])
        owners = find_tensors(cell, [self._trace.constants[str(n.target)] for n in tensors])
        learned = {n for n in tensors if self._trace.constants[str(n.target)].requires_grad}
        counters = find_tensors(cell, [counter for counter, _ in self._trace.counted])
        added = [count for _, count in self._trace.counted]
        learned |= {n for n in shared if self._argument[n] in self._learned_shared}
        return Lowered(
            self.to.values,
            outputs,
            list(self._constants.values()),
            fx.GraphModule(torch.nn.Module(), graph).forward,
            tuple(owners),
            tuple(self._argument[node] for node in shared),
            frozenset(
                number
                for number, node in enumerate(self._constants)
                if not learned.isdisjoint(_ancestors([node]))
            ),
            tuple(self._find_running(cell)),
            tuple(zip(counters, added, strict=True)),
        )

    def _place(self, node: fx.Node, how: str, name: str) -> None:
        shape = tuple(node.meta["val"].shape[1:])
        if how == "shared":
            self._fixed[node] = None
            self._argument[node] = name
        elif how in ("x", "edge", "previous") and node.users:
            self._require_real(node)
            space = EDGES if how == "edge" else NODES
            operation = {"x": X, "edge": EDGE, "previous": PREVIOUS}[how]
            if how == "edge" and self._signature.has_tables:
                operation = "look_up"
            if how == "previous" and self._signature.in_rounds:
                operation = "gather_previous"
            self._views[node] = self.to.add(operation, space, shape, name=name)
        elif how in ("rows", "sum") and node.users:
            operation, space = ("gather", EDGES) if how == "rows" else ("gather_sum", NODES)
            self._views[node] = self.to.add(operation, space, shape, name=name)
        elif how == "count" and node.users:
            self._views[node] = self.to.add("count_edges", NODES, ())
        elif how in ("child_count", "position") and node.users:
            self._views[node] = self.to.add("integer", EDGES, (), name=how)

    def _call(self, node: fx.Node) -> Any:
        inputs = node.all_input_nodes
        if any(source in self._changed for source in inputs):
            raise Untraceable("it reads a tensor again that it has changed in place")
        if not self._has_rows(node) and all(source in self._fixed for source in inputs):
            self._fixed[node] = None
            return None
        made: Any = node.args[0] if node.target is operator.getitem else node
        if gives_views(made.target):
            is_read = node.users and isinstance(node.meta["val"], Tensor)  # autograd detaches, too
            return self._arranged(node, made.args[0]) if is_read else None
        if made is not node:
            return self._views[made][node.args[1]]
        packet, view = self._packet(node), None
        if packet in _HANDLES:
            return self._handle(node)
        if packet in _FILLS:
            return self._fill(node, _FILLS[packet])
        if packet in self._others:
            return self._others[packet](node)
        if packet in self._elementwise:
            view = self._elementwise[packet](*self._operands(node), **self._options(node))
        if view is None:
            raise Untraceable(f"it calls {node.target}, which native code does not have")
        return self._shaped(node, view)

    def _packet(self, node: fx.Node) -> Any:
        """The operation, of one that changes its first argument the one that does not."""
        packet = getattr(node.target, "overloadpacket", None)
        name = getattr(packet, "__name__", "")
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return packet
        changed = node.args[0]
        plain = getattr(aten, name.removesuffix("_"), None)
        if plain is None or not name.endswith("_"):
            raise Untraceable(f"it calls {node.target}, which changes a tensor in place")
        self._refuse_seen_change(changed)  # type: ignore[arg-type]
        return plain

    def _refuse_seen_change(self, node: fx.Node) -> None:
        """A change in place is one to a new value, unless memory of something else is changed."""
        if node.op != "call_function" or _may_share_memory(node):
            raise Untraceable("it changes a tensor in place that something else may read")
        if any(_may_share_memory(user) for user in node.users):
            raise Untraceable("it changes a tensor in place of which there are views")
        self._changed.add(node)

    def _operands(self, node: fx.Node) -> list[Any]:
        return [self._operand(argument) for argument in node.args]

    def _options(self, node: fx.Node) -> dict[str, Any]:
        names = ("alpha", "value", "min", "max", "rounding_mode", "approximate")
        return {k: self._operand(v) for k, v in node.kwargs.items() if k in names}

    def _operand(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self._view(argument)
        if isinstance(argument, (bool, int)):
            return float(argument)
        return argument

    def _view(self, node: Any) -> View:
        """The view of a node; a constant if it depends on parameters alone."""
        if node in self._fixed:
            return self._constant(node).view
        view = self._views.get(node)
        if not isinstance(view, View):
            raise Untraceable("it reads what native code does not have, such as `children.parent`")
        return view

    def _constant(self, node: fx.Node) -> Value:
        if node not in self._constants:
            value = node.meta.get("val")
            if value is None:
                value = self._trace.constants[str(node.target)]
            dtype = value.dtype
            if dtype != self._signature.dtype and dtype.is_floating_point:
                raise Untraceable(f"a parameter is {dtype}, others are {self._signature.dtype}")
            if not dtype.is_floating_point:
                raise Untraceable(f"it computes with a tensor of {dtype}")
            number = len(self._constants)
            self._constants[node] = Value(CONSTANT, WHOLE, tuple(value.shape), (), "", number)
            self._constants[node].name = str(number)
        return self._constants[node]

    def _has_rows(self, node: fx.Node) -> bool:
        """True if a value has a row for each node or edge."""
        value = node.meta.get("val")
        parts = value if isinstance(value, (list, tuple)) else [value]
        known = (self._nodes, self._edges, self._nodes + 1)
        return any(
            isinstance(part, Tensor) and part.dim() > 0 and part.shape[0] in known for part in parts
        )

    def _space(self, node: fx.Node) -> str:
        value = node.meta["val"]
        if value.dim() and value.shape[0] == self._nodes:
            return NODES
        if value.dim() and value.shape[0] == self._edges:
            return EDGES
        raise Untraceable("it makes a tensor without a row for each node or edge")

    def _shaped(self, node: fx.Node, view: View) -> View:
        """Checks a view against what torch says of it."""
        shape = tuple(node.meta["val"].shape[1:])
        if self._space(node) != view.space:
            view = self.to.in_space(view, self._space(node))
        if view.shape != shape:
            raise Untraceable(f"{node.target} has the shape {list(view.shape)}, not {list(shape)}")
        return view

    def _require_real(self, node: fx.Node) -> None:
        dtype = node.meta["val"].dtype
        if dtype != self._signature.dtype:
            raise Untraceable(f"it reads a tensor of {dtype} among ones of {self._signature.dtype}")

    def _output(self, node: Any) -> View:
        if not isinstance(node, fx.Node) or self._space(node) != NODES:
            raise Untraceable("it returns something else than a row for each node")
        if node in self._fixed:
            raise Untraceable("it returns the same for all nodes")
        self._require_real(node)
        return self._view(node)

    def _handle(self, node: fx.Node) -> View:
        view, value = self._view(node.args[0]), node.meta["val"]
        source: Any = node.args[0]
        is_cut = source.meta["val"].is_floating_point() and not value.is_floating_point()
        if is_cut or value.dtype not in (self._signature.dtype, torch.int64, torch.bool):
            raise Untraceable(f"it converts to {value.dtype}")
        return view

    def _fill(self, node: fx.Node, number: float | str) -> View:
        if number == "fill_value":
            place = {aten.full_like: 1, aten.full: 1, aten.new_full: 2}[self._packet(node)]
            number = node.args[place]  # type: ignore[assignment]
        shape = node.meta["val"].shape[1:]
        return self.to.add(
            "fill", self._space(node), shape, [self.to.number(float(number)).expanded(shape)]
        )

    def _arranged(self, node: fx.Node, source: Any) -> View:
        """A view, which torch describes by strides: slices, reshapes, stretched dimensions."""
        tensor, packet = node.meta["val"], getattr(node.target, "overloadpacket", None)
        space, shape = self._space(node), tuple(tensor.shape[1:])
        if source in self._fixed:
            if packet != aten.expand:
                raise Untraceable("it makes rows of a parameter")
            return self.to.add("copy", space, shape, [self._view(source).expanded(shape)])
        if tensor.dtype != source.meta["val"].dtype:
            raise Untraceable(f"it takes numbers for {tensor.dtype}")
        if source not in self._whole:
            view = self._view(source)
            if not source.meta["val"].is_contiguous():
                raise Untraceable("it takes a view of what it has changed in place")
            self._whole[source] = view if view.is_all else self.to.copy(view)
        whole = self._whole[source]
        if packet == aten.detach and self._signature.differentiate and node.users:
            whole = self.to.add("detach", whole.space, whole.shape, [whole])
        self._whole[node] = whole
        size, row = math.prod(whole.shape), tensor.stride(0)
        count = self._nodes if whole.space == NODES else self._edges
        if size and row * tensor.shape[0] != count * size:
            raise Untraceable("it works across the nodes of a group")
        offset = tensor.storage_offset()
        return View(whole.value, space, shape, tensor.stride()[1:], offset, row if size else 0)

    def _after_rows(self, source: Any, dim: Any) -> int:
        """A dimension that an operation names, counted after the rows."""
        counted: int = dim % source.meta["val"].dim()
        if counted == 0:
            raise Untraceable("it works across the nodes of a group")
        return counted - 1

    def _cat(self, node: fx.Node) -> View:
        """Rows side by side; of a stack, each with a dimension of its own."""
        parts: Any = node.args[0]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        at, space = self._after_rows(node, dim), self._space(node)
        if self._packet(node) == aten.stack:
            views = [self._view(part) for part in parts]
            views = [
                view.arranged(
                    (*view.shape[:at], 1, *view.shape[at:]), (*view.steps[:at], 1, *view.steps[at:])
                )
                for view in views
            ]
        else:
            # What has no row, torch leaves out.
            parts = [part for part in parts if part.meta["val"].dim() == node.meta["val"].dim()]
            views = [self._view(part) for part in parts]
        if any(view.space != space for view in views):
            raise Untraceable("it joins rows with a parameter")
        return self.to.add(f"cat:{at}", space, node.meta["val"].shape[1:], views)

    def _product(self, node: fx.Node) -> View:
        """x @ weight, or that with a bias; the weight and the bias depend on parameters alone."""
        *bias, x, weight = node.args
        if node.kwargs or weight not in self._fixed or (bias and bias[0] not in self._fixed):
            raise Untraceable(f"it multiplies by what is no parameter ({node.target})")
        rows = self._view(x)
        if rows.space == WHOLE or len(rows.shape) != 1:
            raise Untraceable("it multiplies a parameter by rows")
        # A transposed weight is packed as it lies: autograd need not transpose its gradient back.
        is_transposed = _is_transposed(weight)
        inputs = [
            self.to.contiguous(rows),
            self._view(weight.args[0] if is_transposed else weight),  # type: ignore[union-attr]
        ]
        if bias:
            inputs.append(self._view(bias[0]))
            if inputs[2].shape != node.meta["val"].shape[1:]:
                raise Untraceable("the bias of a product has not one number for each column")
        operation = "multiply_transposed" if is_transposed else "multiply"
        return self.to.add(operation, rows.space, node.meta["val"].shape[1:], inputs)

    def _reduce(self, node: fx.Node, operation: str) -> View:
        """A sum or maximum over some dimensions of a row."""
        view = self._view(node.args[0])
        dims: Any = node.args[1] if len(node.args) > 1 else ()
        if not dims:
            raise Untraceable("it works across the nodes of a group")
        dims = [self._after_rows(node.args[0], dim) for dim in dims]
        return self.to.reshape(self._reduced(view, dims, operation), node.meta["val"].shape[1:])

    def _reduced(self, view: View, dims: Sequence[int], operation: str) -> View:
        """Reduced over dimensions, which stay as ones."""
        shape = [1 if dim in dims else size for dim, size in enumerate(view.shape)]
        return self.to.add(operation, view.space, shape, [view])

    def _mean(self, node: fx.Node) -> View:
        total = self._reduce(node, "reduce_sum")
        count = math.prod(self._view(node.args[0]).shape)
        return self.to.apply("mul", total, math.prod(total.shape) / max(count, 1))

    def _softmax(self, node: fx.Node) -> View:
        view, dim = self._view(node.args[0]), self._after_rows(*node.args[:2])
        highest = self._reduced(view, [dim], "reduce_max")
        highest = self.to.add("detach", highest.space, highest.shape, [highest])
        weight = self.to.apply("exp", self.to.apply("sub", view, highest))
        return self.to.apply("div", weight, self._reduced(weight, [dim], "reduce_sum"))

    def _layer_norm(self, node: fx.Node) -> list[View]:
        x, sizes, weight, bias, epsilon = node.args
        view, to = self._view(x), self.to
        count = len(sizes)  # type: ignore[arg-type]
        dims = range(len(view.shape) - count, len(view.shape))
        if count > len(view.shape):
            raise Untraceable("it works across the nodes of a group")
        share = 1 / math.prod(sizes)  # type: ignore[arg-type]
        mean = to.apply("mul", self._reduced(view, dims, "reduce_sum"), share)
        centred = to.apply("sub", view, mean)
        square = self._reduced(to.apply("mul", centred, centred), dims, "reduce_sum")
        scale = to.apply("rsqrt", to.apply("add", to.apply("mul", square, share), epsilon))  # type: ignore[arg-type]
        found = to.apply("mul", centred, scale)
        found = found if weight is None else to.apply("mul", found, self._view(weight))
        found = found if bias is None else to.apply("add", found, self._view(bias))
        return [found, mean, scale]

    def _log_sigmoid(self, node: fx.Node) -> list[Any]:
        """With what torch keeps for backward, which nobody reads here."""
        return [self._elementwise[aten.log_sigmoid_forward](self._view(node.args[0])), None]

    def _batch_norm(self, node: fx.Node) -> list[View | None]:
        """By running statistics, or by those of all nodes of a type in a round."""
        x, weight, bias, mean, variance, is_training, momentum, epsilon = node.args
        to, given = self.to, self._view(x)
        if len(given.shape) != 1:
            raise Untraceable("it normalises more than the columns of a row")
        if is_training or mean is None:
            if not self._signature.in_rounds:
                raise Untraceable("it normalises over the nodes of a group (BatchNorm)")
            own_mean = to.mean_of_group(given)
            centred = to.apply("sub", given, own_mean)
            spread = to.mean_of_group(to.apply("mul", centred, centred))
            if mean is not None:
                found = own_mean.value, spread.value, mean, variance, momentum
                self._running.append(found)  # type: ignore[arg-type]
            scale = to.apply("rsqrt", to.apply("add", spread, epsilon))  # type: ignore[arg-type]
            result = to.apply("standardise", given, own_mean, scale)
        else:
            spread = to.add("copy", given.space, given.shape, [self._view(variance)])
            scale = to.apply("rsqrt", to.apply("add", spread, epsilon))  # type: ignore[arg-type]
            result = to.apply("mul", to.apply("sub", given, self._view(mean)), scale)
        result = result if weight is None else to.apply("mul", result, self._view(weight))
        return [result if bias is None else to.apply("add", result, self._view(bias)), None, None]

    def _find_running(self, cell: Cell) -> Iterator[RunningStatistics]:
        """The running statistics of normalisations."""
        for own_mean, spread, mean, variance, momentum in self._running:
            kept = [self._trace.constants[str(node.target)] for node in (mean, variance)]
            kept_mean, kept_variance = find_tensors(cell, kept)
            yield RunningStatistics(own_mean.name, spread.name, kept_mean, kept_variance, momentum)

    def _sum_edges(self, node: fx.Node) -> View:
        """A sum over edges; of children times a number each, no row is made for an edge."""
        view = self._view(node.args[0])
        if view.value.operation == "mul" and view.is_all:
            for rows, weight in (view.value.inputs, view.value.inputs[::-1]):
                field = rows.value.name
                is_fetched = rows.value.operation == "gather" and rows.is_all
                is_number = weight.space == EDGES and not any(weight.steps)
                if is_fetched and is_number and field not in self._weighted:
                    self._weighted.add(field)
                    one = self.to.contiguous(weight.arranged((1,), (1,)))
                    return self.to.add("gather_weighted", NODES, view.shape, [one], field)
        return self._of_edges(node, "sum_edges", NODES)

    def _of_edges(self, node: fx.Node, operation: str, space: str) -> View:
        view = self._view(node.args[0])
        view = self.to.contiguous(self.to.in_space(view, EDGES if space == NODES else NODES))
        return self.to.add(operation, space, view.shape, [view])


def _may_share_memory(node: fx.Node) -> bool:
    """True if a node may have the memory of what it is computed from."""
    if node.target is operator.getitem:
        return _may_share_memory(node.all_input_nodes[0])
    return shares_memory(node.target)


def _is_transposed(node: Any) -> bool:
    """True if a node is the transpose of another."""
    return node.op == "call_function" and node.target is aten.t.default


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes and all that they are computed from."""
    stack, found = list(nodes), set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found
