"""Writing programs for torch: the values of a cell as a function of one group.

What lies in the memory of the pass is computed there; other values last as long as the function
needs them, and an elementwise operation takes the memory of an operand that nothing reads any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.backends.torch_graph import (
    GroupGraph,
    Symbolic,
    columns_of,
    is_in_order,
    is_plain,
    narrowed,
    own_sizes,
    size_in,
)
from graphfold.batching.backends.torch_program import TorchProgram, add_by_kind, max_rows, pull
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.program import Place
from graphfold.batching.compiler.values import (
    COPY,
    MEAN_OF_GROUP,
    NODES,
    PRODUCT,
    WHOLE,
    Operation,
    Unwritable,
    Value,
    View,
    contiguous,
    covers,
    first_copied,
)
from graphfold.batching.kernels.gather import gather_sum

aten = torch.ops.aten
#: Notes a call of a function, see `GroupGraph.call`.
Call: TypeAlias = Callable[..., Symbolic]

#: What torch calls an operation with a number as its second operand, if that has another name.
_WITH_NUMBER: Mapping[Operation, Callable[..., Tensor]] = {
    op.MAXIMUM: torch.clamp_min,
    op.MINIMUM: torch.clamp_max,
}
#: With a number as the first one: what the same is of the operands the other way round.
_REVERSED: Mapping[Operation, Callable[..., Tensor]] = {
    op.ADD: torch.add,
    op.MUL: torch.mul,
    **_WITH_NUMBER,
}
#: What is computed of truth values, not of numbers.
_LOGICAL = (op.LOGICAL_AND, op.LOGICAL_OR, op.LOGICAL_NOT)


def _multiply_add(call: Call, x: Any, y: Any, z: Any, **out: Any) -> Symbolic:
    """Writes x * y + z."""
    if isinstance(x, float):
        x, y = y, x
    if isinstance(z, float):
        return call(torch.add, call(torch.mul, x, y), z, **out)
    if isinstance(y, float):
        return call(torch.add, z, x, alpha=y, **out)
    return call(torch.addcmul, z, x, y, **out)


def _slope(operation: Any, *limit: float) -> Callable[..., Symbolic]:
    """A derivative that torch has an operation for."""

    def write(call: Call, grad: Any, y: Any, out: Symbolic | None = None) -> Symbolic:
        if out is None:
            return call(operation.default, grad, y, *limit)
        return call(operation.grad_input, grad, y, *limit, grad_input=out)

    return write


#: What torch has no function of the same name for -> what writes it by calls of others.
_WRITTEN: Mapping[Operation, Callable[..., Symbolic]] = {
    op.RELU: lambda call, x, **out: call(torch.clamp_min, x, 0, **out),
    op.FMA: _multiply_add,
    op.STANDARDISE: lambda call, x, mean, scale, **out: call(
        torch.mul, call(torch.sub, x, mean), scale, **out
    ),
    op.SIGMOID_GRAD: _slope(aten.sigmoid_backward),
    op.TANH_GRAD: _slope(aten.tanh_backward),
    op.RELU_GRAD: _slope(aten.threshold_backward, 0),
}


class TorchWriter:
    """Writes the function of a program as a graph of calls of torch."""

    def __init__(
        self,
        dtype: torch.dtype,
        values: Sequence[Value],
        places: Mapping[Value, Place],
        reuses_memory: bool = True,
    ) -> None:
        self._values, self._places = values, places
        self._graph = GroupGraph(dtype, values, places, reuses_memory)
        self._into = self._find_products()
        self._writers: Mapping[Operation, Callable[[Value], None]] = {
            **dict.fromkeys((COPY, op.DETACH, op.FILL), self._copy),
            **dict.fromkeys((op.GATHER, op.GATHER_PREVIOUS, op.LOOK_UP), self._gather),
            **dict.fromkeys((op.GATHER_SUM, op.GATHER_WEIGHTED), self._gather_sum),
            **dict.fromkeys((op.MULTIPLY, op.MULTIPLY_TRANSPOSED), self._multiply),
            **dict.fromkeys((op.INTEGER, op.COUNT_EDGES), self._integer),
            **dict.fromkeys((op.REDUCE_SUM, op.REDUCE_MAX), self._reduce),
            op.ADD: self._add,
            op.WHERE: self._where,
            op.CAT: self._cat,
            op.EXPAND: self._expand,
            op.SUM_EDGES: self._sum_edges,
            op.MAX_EDGES: self._max_edges,
            op.PULL: self._pull,
            MEAN_OF_GROUP: self._mean,
            op.ASSEMBLE: self._assemble,
            op.ACCUMULATE: self._accumulate,
            op.LOOK_UP_ADD: self._look_up_add,
        }

    def run(self) -> TorchProgram:
        """Writes all values."""
        for at, value in enumerate(self._values):
            self._graph.at = at
            if value not in self._into and value not in self._graph.tensors:
                self._compute(value)
        return self._graph.program()

    def _find_products(self) -> dict[Value, Value]:
        """Product -> the sum that it is computed in: nothing else reads it."""
        times = Counter(view.value for value in self._values for view in value.inputs)
        products = {
            value
            for value in self._values
            if value.operation.kind == PRODUCT
            and len(value.inputs) == 2
            and times[value] == 1
            and value not in self._places
        }
        found: dict[Value, Value] = {}
        for value in self._values:
            if value.operation is not op.ADD:
                continue
            for view, other in (value.inputs, value.inputs[::-1]):
                if (
                    view.value in products
                    and view.is_all
                    and view.shape == view.value.shape == value.shape
                    and other.space == value.space == view.value.space
                    and other.value not in found
                    and not any(other.stretched)
                ):
                    found[view.value] = value
        return found

    # Values.

    def _compute(self, value: Value) -> None:
        """Writes the calls that compute a value."""
        if value.operation in self._writers:
            self._writers[value.operation](value)
        elif value.operation.is_truth:
            self._truth(value)
        else:
            self._elementwise(value)

    def _operands(self, value: Value, not_real: int = 0) -> list[Any]:
        """The operands of an elementwise operation: tensors that torch stretches, or numbers.

        Args:
            value: what is computed.
            not_real: how many of the first operands are truth values.
        """
        views, num_dims = value.inputs, len(value.shape)
        found: list[Any] = []
        lacking = {
            dim
            for dim, size in enumerate(value.shape)
            if size > 1 and all(size_in(view, dim, num_dims) == 1 for view in views)
        }
        for number, view in enumerate(views):
            if view.value.literal is not None:
                found.append(view.value.literal)
                continue
            node = self._graph.view(view, real=number >= not_real)
            if lacking and view.space == value.space:
                sizes = own_sizes(view, lacking)
                node, lacking = node.expand(self._graph.count(view.space), *sizes), set()
            found.append(node)
        return found

    def _number(self, operand: Any) -> Any:
        """An operand as a tensor."""
        is_number = isinstance(operand, float)
        return self._graph.argument("number", number=operand) if is_number else operand

    def _number_by_number(
        self, value: Value, function: Callable[..., Tensor], operands: Iterable[Any]
    ) -> None:
        """An elementwise operation, which may write over an operand."""
        views = value.inputs
        is_ordered = all(map(is_in_order, views))
        self._graph.compute(value, function, *operands, reuse=views, is_ordered=is_ordered)

    def _elementwise(self, value: Value) -> None:
        """An operation that torch has, most by the same name, with a special one for numbers."""
        operation, operands = value.operation, self._operands(value)
        function = getattr(torch, operation.name, None)
        if operation in _WRITTEN:
            function = partial(_WRITTEN[operation], self._graph.call)
        if function is None:
            raise Unwritable(f"torch has no operation '{operation}'")
        if len(operands) == 2:
            x, y = operands
            if isinstance(y, float):
                function = _WITH_NUMBER.get(operation, function)
            elif isinstance(x, float) and operation in _REVERSED:
                function, operands = _REVERSED[operation], [y, x]
            else:
                operands = [self._number(x), y]
        self._number_by_number(value, function, operands)

    def _where(self, value: Value) -> None:
        operands = map(self._number, self._operands(value, not_real=1))
        self._number_by_number(value, torch.where, operands)

    def _truth(self, value: Value) -> None:
        """A truth value; in the memory of the pass it is one or zero."""
        function, is_logical = getattr(torch, value.operation.name), value.operation in _LOGICAL
        x, *rest = self._operands(value, not_real=len(value.inputs) if is_logical else 0)
        rest = [*map(self._number, rest)] if is_logical else rest
        node = self._graph.call(function, self._number(x), *rest)
        if not all(map(is_in_order, value.inputs)):
            node = node.contiguous()
        self._graph.store(value, node)
        if value not in self._places:
            self._graph.truths.add(value)

    def _cat(self, value: Value) -> None:
        parts = [self._graph.view(v, range(len(v.shape))) for v in value.inputs]
        parts = [self._graph.stretched(n, v) for n, v in zip(parts, value.inputs, strict=True)]
        self._graph.compute(value, torch.cat, parts, value.number + 1)

    def _copy(self, value: Value) -> None:
        """Copies a view, or gives a value the memory of another one."""
        (view,), graph = value.inputs, self._graph
        if graph.is_alias(value):
            whole = view.arranged(value.shape, contiguous(value.shape))
            graph.tensors[value] = graph.view(whole)
            return
        number = view.value.literal
        if number is not None:
            out = graph.target(value)
            if out is not None:
                out.fill_(number)
            graph.tensors[value] = graph.new("new_full", value, number) if out is None else out
            return
        node = graph.view(view)
        if value in self._places:
            graph.store(value, node)  # `copy_` stretches it
            return
        if view.space == WHOLE or any(view.stretched):
            node = node.expand(graph.count(value.space), *value.shape)
        # A copy in memory of its own, whatever the order of what it is made of.
        node = node.clone(memory_format=torch.contiguous_format)
        graph.store(value, node, is_scratch=True)

    def _gather(self, value: Value) -> None:
        whole, rows = self._fetched(value)
        self._graph.compute(value, torch.index_select, whole, 0, rows)

    def _fetched(self, value: Value) -> tuple[Symbolic, Symbolic]:
        """The tensor of which a value has rows, and which rows these are."""
        assert value.operation.fetched is not None
        kind, index = value.operation.fetched
        key = kind, value.name
        rows = self._graph.argument(index, key if kind == "read" else ("", ""))
        return self._graph.argument("whole", key), rows

    def _expand(self, value: Value) -> None:
        """Rows of nodes for their edges."""
        node = self._graph.view(value.inputs[0], range(len(value.shape)))
        node = self._graph.stretched(node, value.inputs[0])
        self._graph.compute(value, torch.index_select, node, 0, self._graph.argument("parent"))

    def _gather_sum(self, value: Value) -> None:
        weight = [self._graph.view(view).reshape(-1).contiguous() for view in value.inputs]
        whole, rows = self._fetched(value)
        self._store_sum(value, gather_sum, whole, rows, self._graph.argument("edge_ptr"), *weight)

    def _sum_edges(self, value: Value) -> None:
        numbers = self._flat_rows(value.inputs[0]), self._graph.argument("edge_number")
        self._store_sum(value, gather_sum, *numbers, self._graph.argument("edge_ptr"))

    def _max_edges(self, value: Value) -> None:
        flat, parent = self._flat_rows(value.inputs[0]), self._graph.argument("parent")
        self._store_sum(value, max_rows, flat, parent, self._graph.count(NODES))

    def _store_sum(self, value: Value, function: Callable[..., Tensor], *args: Any) -> None:
        """Writes the call of a function that gives rows of numbers, in memory of its own."""
        node = self._shaped(self._graph.call(function, *args), value)
        self._graph.store(value, node, is_scratch=True)

    def _flat_rows(self, view: View) -> Symbolic:
        """[number of rows, size] the numbers of a view, with stretched dimensions repeated."""
        node = self._graph.stretched(self._graph.view(view), view)
        if len(view.shape) == 1:
            return node
        return node.reshape(self._graph.count(view.space), math.prod(view.shape))

    def _shaped(self, node: Symbolic, value: Value) -> Symbolic:
        """Rows of numbers in the shape of a value."""
        is_flat = len(value.shape) == 1
        return node if is_flat else node.view(self._graph.count(value.space), *value.shape)

    def _integer(self, value: Value) -> None:
        kind = "edge_count" if value.operation is op.COUNT_EDGES else "integer"
        self._graph.store(value, self._graph.argument(kind, (value.name, "")))

    def _pull(self, value: Value) -> None:
        node = self._graph.call(pull, *self._pulled(value))
        self._graph.store(value, self._shaped(node, value))

    def _pulled(self, value: Value) -> tuple[Any, ...]:
        """The arguments of `pull`."""
        pulled = self._graph.argument("pulled", ("pulled", value.name))
        return pulled, self._graph.argument("like"), self._graph.count(NODES), value.size

    def _mean(self, value: Value) -> None:
        self._graph.compute(value, torch.mean, self._graph.view(value.inputs[0]), 0, keepdim=True)

    def _reduce(self, value: Value) -> None:
        (view,) = value.inputs
        sizes = enumerate(zip(view.shape, value.shape, strict=True), start=1)
        dims = [dim for dim, (size, reduced) in sizes if size != reduced]
        node = self._graph.stretched(self._graph.view(view, range(len(view.shape))), view)
        if not dims:
            self._graph.store(value, node.clone())
            return
        function = torch.sum if value.operation is op.REDUCE_SUM else torch.amax
        is_ordered = is_in_order(view)
        self._graph.compute(value, function, node, dims, keepdim=True, is_ordered=is_ordered)

    def _multiply(self, value: Value, product: Value | None = None) -> None:
        """x @ weight, with a bias, or with the rows added to it that a sum of a product adds."""
        graph, (x, weight, *added) = self._graph, (product or value).inputs
        is_transposed = (product or value).operation is op.MULTIPLY_TRANSPOSED
        kind = "transposed" if is_transposed else "weight"
        right = graph.argument(kind, ("constant", weight.value.name))
        left = graph.view(x)
        reuse = []
        if product is not None:
            added = [view for view in value.inputs if view.value is not product]
            reuse = [view for view in added if graph.memory(x) != graph.memory(view)]
        function = torch.addmm if added else torch.mm
        graph.compute(value, function, *map(graph.view, added), left, right, reuse=reuse)

    def _add(self, value: Value) -> None:
        products = [view.value for view in value.inputs if self._into.get(view.value) is value]
        if products:
            self._multiply(value, *products)
        else:
            self._elementwise(value)

    def _assemble(self, value: Value) -> None:
        """Adds up the gradients of the views of a value."""
        regions: tuple[View, ...] = value.number
        names, graph = first_copied(value, regions), self._graph
        pairs = list(zip(regions, value.inputs, strict=True))
        if names is not None and set(names) == {"copy"} and self._join(value, pairs):
            return
        whole = [
            (region, grad)
            for region, grad in pairs
            if covers(region, grad) and not any(grad.stretched)
        ][:2]
        if len(whole) == 2:
            graph.compute(value, torch.add, *(graph.view(grad) for _, grad in whole))
            for pair in whole:
                pairs.remove(pair)
            names = ["accumulate"] * len(pairs)
        else:
            out = graph.target(value)
            graph.tensors[value] = out = graph.new("new_empty", value) if out is None else out
            if names is None:
                out.zero_()
                names = ["accumulate"] * len(pairs)
        for (region, grad), name in zip(pairs, names, strict=True):
            target = graph.view(region)
            if name == "copy":
                target.copy_(graph.view(grad))
            else:
                target.add_(self._reduced(grad, region))

    def _join(self, value: Value, pairs: Sequence[tuple[View, View]]) -> bool:
        """Writes the gradients of columns that make up a value side by side, if they do."""
        cuts = [(columns_of(region), grad) for region, grad in pairs]
        spaces = {view.space for pair in pairs for view in pair}
        if spaces != {value.space} or any(cut is None for cut, _ in cuts):
            return False
        cuts.sort(key=lambda cut: cut[0] or (0, 0))
        flat = [self._flat_rows(grad) for _, grad in cuts]
        if len(value.shape) == 1:
            self._graph.compute(value, torch.cat, flat, 1)
        else:
            self._graph.store(
                value, self._shaped(self._graph.call(torch.cat, flat, 1), value), is_scratch=True
            )
        return True

    def _reduced(self, grad: View, region: View) -> Symbolic:
        """A gradient, added up along the dimensions that its region stretches."""
        node, dims = self._graph.view(grad), _stretched_dims(region)
        if not dims:
            return node
        node = self._graph.stretched(node, grad)
        return self._graph.call(torch.sum, node, dims, keepdim=True)

    def _accumulate(self, value: Value) -> None:
        """Adds up the gradient of a constant over the rows of the group."""
        (grad,) = value.inputs
        region: View = value.number
        size, shape = region.value.size, own_sizes(region)
        sums = self._graph.argument("sums", ("accumulated", value.name))
        dims = [0, *_stretched_dims(region)]
        node = self._graph.stretched(self._graph.view(grad), grad)
        if region.offset == 0 and is_plain(region, shape) and math.prod(shape) == size:
            sums.add_(self._graph.call(torch.sum, node, dims).reshape(size))
            return
        total = self._graph.call(torch.sum, node, dims, keepdim=True).reshape(shape)
        flat = narrowed(sums.view(1, -1), region.offset, size)
        flat.as_strided(shape, region.steps).add_(total)

    def _look_up_add(self, value: Value) -> None:
        grad = self._flat_rows(value.inputs[0])
        table = self._graph.argument("sums", ("table_grad", value.name)).view(-1, value.size)
        self._graph.call(add_by_kind, table, self._graph.argument("kind"), grad)


def _stretched_dims(view: View) -> list[int]:
    """The dimensions of a tensor that a view stretches; its rows are dimension 0."""
    return [dim for dim, is_stretched in enumerate(view.stretched, start=1) if is_stretched]
