"""Writing programs for torch: the values of a cell as a function of one group.

What lies in the memory of the pass is computed there; other values last as long as the function
needs them, and an elementwise operation takes the memory of an operand that nothing reads any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.backends.program_writer import first_copied
from graphfold.batching.backends.torch_graph import (
    GroupGraph,
    columns_of,
    is_in_order,
    is_plain,
    own_sizes,
    size_in,
    stretched_dims,
)
from graphfold.batching.backends.torch_program import TorchProgram, add_by_kind, max_rows, pull
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.program import Place
from graphfold.batching.compiler.values import (
    CONSTANT,
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
)
from graphfold.batching.kernels.gather import gather_sum

aten = torch.ops.aten

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
#: The derivatives that torch has functions for, and what these call their `out`.
_SLOPES: Mapping[Operation, tuple[Any, Any]] = {
    op.SIGMOID_GRAD: (aten.sigmoid_backward.default, aten.sigmoid_backward.grad_input),
    op.TANH_GRAD: (aten.tanh_backward.default, aten.tanh_backward.grad_input),
    op.RELU_GRAD: (aten.threshold_backward.default, aten.threshold_backward.grad_input),
}


def write_torch_program(
    dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
) -> TorchProgram:
    """The program that computes some values; see `Backend.write_program`."""
    return TorchWriter(dtype, values, places).run()


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
        self._computed = set(values)
        self._times = Counter(view.value for value in values for view in value.inputs)
        self._into = self._find_products()
        self._writers: Mapping[Operation, Callable[[Value], None]] = {
            **dict.fromkeys((COPY, op.DETACH, op.FILL), self._copy),
            **dict.fromkeys((op.GATHER, op.GATHER_PREVIOUS, op.LOOK_UP), self._gather),
            **dict.fromkeys((op.GATHER_SUM, op.GATHER_WEIGHTED), self._gather_sum),
            **dict.fromkeys((op.MULTIPLY, op.MULTIPLY_TRANSPOSED), self._multiply),
            **dict.fromkeys((op.INTEGER, op.COUNT_EDGES), self._integer),
            **dict.fromkeys((op.REDUCE_SUM, op.REDUCE_MAX), self._reduce),
            **dict.fromkeys(_SLOPES, self._slope),
            op.ADD: self._add,
            op.RELU: self._relu,
            op.WHERE: self._where,
            op.FMA: self._multiply_add,
            op.STANDARDISE: self._standardise,
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
        found: dict[Value, Value] = {}
        taken: set[Value] = set()
        for value in self._values:
            if value.operation is not op.ADD:
                continue
            for view, other in (value.inputs, value.inputs[::-1]):
                product = view.value
                if (
                    value not in taken
                    and product.operation.kind == PRODUCT
                    and len(product.inputs) == 2
                    and self._times[product] == 1
                    and product not in self._places
                    and product in self._computed
                    and view.is_all
                    and view.shape == product.shape == value.shape
                    and other.space == value.space == product.space
                    and other.value not in found
                    and not any(stretched_dims(other))
                ):
                    found[product] = value
                    taken.add(value)
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

    def _operands(self, value: Value, real: Sequence[bool]) -> list[Any]:
        """The operands of an elementwise operation: tensors that torch stretches, or numbers."""
        views: Sequence[View] = value.inputs
        found: list[Any] = []
        lacking = {
            dim
            for dim, size in enumerate(value.shape)
            if size > 1 and all(size_in(view, dim, len(value.shape)) == 1 for view in views)
        }
        for view, is_real in zip(views, real, strict=True):
            if view.value.operation is CONSTANT and not view.value.name:
                found.append(float(view.value.number))
                continue
            node = self._graph.view(view, real=is_real)
            if lacking and view.space == value.space:
                sizes = self._graph.count(view.space), *own_sizes(view, lacking)
                node, lacking = self._graph.method("expand", node, *sizes), set()
            found.append(node)
        return found

    def _number(self, operand: Any) -> fx.Node:
        """An operand as a tensor."""
        if isinstance(operand, float):
            return self._graph.argument("number", number=operand)
        node: fx.Node = operand
        return node

    def _number_by_number(
        self, value: Value, function: Callable[..., Tensor], *args: Any, **options: Any
    ) -> None:
        """An elementwise operation, which may write over an operand."""
        views = value.inputs
        is_ordered = all(map(is_in_order, views))
        self._graph.compute(value, function, *args, reuse=views, is_ordered=is_ordered, **options)

    def _elementwise(self, value: Value) -> None:
        """An operation that torch has by the same name, with a special one for numbers at most."""
        operation, operands = value.operation, self._operands(value, [True] * len(value.inputs))
        function = getattr(torch, operation.name, None)
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
        self._number_by_number(value, function, *operands)

    def _relu(self, value: Value) -> None:
        self._number_by_number(value, torch.clamp_min, *self._operands(value, [True]), 0)

    def _where(self, value: Value) -> None:
        operands = map(self._number, self._operands(value, [False, True, True]))
        self._number_by_number(value, torch.where, *operands)

    def _standardise(self, value: Value) -> None:
        x, mean, scale = map(self._number, self._operands(value, [True] * 3))
        centred = self._graph.call(torch.sub, x, mean)
        self._number_by_number(value, torch.mul, centred, scale)

    def _multiply_add(self, value: Value) -> None:
        """x * y + z."""
        x, y, z = self._operands(value, [True] * 3)
        if isinstance(x, float):
            x, y = y, x
        if isinstance(z, float):
            self._number_by_number(value, torch.add, self._graph.call(torch.mul, x, y), z)
        elif isinstance(y, float):
            self._number_by_number(value, torch.add, z, x, alpha=y)
        else:
            self._number_by_number(value, torch.addcmul, z, x, y)

    def _truth(self, value: Value) -> None:
        """A truth value; in the memory of the pass it is one or zero."""
        function, is_logical = getattr(torch, value.operation.name), value.operation in _LOGICAL
        x, *rest = self._operands(value, [not is_logical] * len(value.inputs))
        rest = list(map(self._number, rest)) if is_logical else rest
        node = self._graph.call(function, self._number(x), *rest)
        if not all(map(is_in_order, value.inputs)):
            node = self._graph.method("contiguous", node)
        self._graph.store(value, node)
        if value not in self._places:
            self._graph.truths.add(value)

    def _slope(self, value: Value) -> None:
        plain, into = _SLOPES[value.operation]
        args: list[Any] = [self._number(x) for x in self._operands(value, [True] * 2)]
        args += [0] if value.operation is op.RELU_GRAD else []
        is_ordered = all(map(is_in_order, value.inputs))
        out = self._graph.target(value)
        if out is None and is_ordered:
            out = self._graph.reusable(value, value.inputs)
        if out is not None:
            self._graph.call(into, *args, grad_input=out)
        else:
            out = self._graph.call(plain, *args)
            out = out if is_ordered else self._graph.method("contiguous", out)
        self._graph.tensors[value] = out
        if value not in self._places:
            self._graph.scratch.add(value)

    def _cat(self, value: Value) -> None:
        parts = [self._graph.view(v, range(len(v.shape))) for v in value.inputs]
        parts = [self._graph.stretched(n, v) for n, v in zip(parts, value.inputs, strict=True)]
        self._graph.compute(value, torch.cat, parts, value.number + 1)

    def _copy(self, value: Value) -> None:
        """Copies a view, or gives a value the memory of another one."""
        (view,) = value.inputs
        if self._graph.is_alias(value):
            self._graph.tensors[value] = self._graph.view(
                view.arranged(value.shape, contiguous(value.shape))
            )
            return
        if view.value.operation is CONSTANT and not view.value.name:
            out, number = self._graph.target(value), float(view.value.number)
            if out is None:
                self._graph.new("new_full", value, number)
            else:
                self._graph.method("fill_", out, number)
                self._graph.tensors[value] = out
            return
        node = self._graph.view(view)
        if value in self._places:
            self._graph.store(value, node)  # `copy_` stretches it
            return
        if view.space == WHOLE or any(stretched_dims(view)):
            node = self._graph.method("expand", node, self._graph.count(value.space), *value.shape)
        # A copy in memory of its own, whatever the order of what it is made of.
        node = self._graph.method("clone", node, memory_format=torch.contiguous_format)
        self._graph.store(value, node, is_scratch=True)

    def _gather(self, value: Value) -> None:
        assert value.operation.fetched is not None
        kind, index = value.operation.fetched
        key = kind, value.name
        rows = self._graph.argument(index, key if kind == "read" else ("", ""))
        self._graph.compute(value, torch.index_select, self._graph.argument("whole", key), 0, rows)

    def _expand(self, value: Value) -> None:
        """Rows of nodes for their edges."""
        node = self._graph.view(value.inputs[0], range(len(value.shape)))
        node = self._graph.stretched(node, value.inputs[0])
        self._graph.compute(value, torch.index_select, node, 0, self._graph.argument("parent"))

    def _gather_sum(self, value: Value) -> None:
        key = "read", value.name
        weight = []
        if value.operation is op.GATHER_WEIGHTED:
            column = self._graph.method("reshape", self._graph.view(value.inputs[0]), -1)
            weight = [self._graph.method("contiguous", column)]
        rows, ptr = self._graph.argument("child_row", key), self._graph.argument("edge_ptr")
        node = self._graph.call(gather_sum, self._graph.argument("whole", key), rows, ptr, *weight)
        self._graph.store(value, node, is_scratch=True)

    def _sum_edges(self, value: Value) -> None:
        flat = self._flat_rows(value.inputs[0])
        node = self._graph.call(
            gather_sum, flat, self._graph.argument("edge_number"), self._graph.argument("edge_ptr")
        )
        self._graph.store(value, self._shaped(node, value), is_scratch=True)

    def _max_edges(self, value: Value) -> None:
        flat = self._flat_rows(value.inputs[0])
        node = self._graph.call(
            max_rows, flat, self._graph.argument("parent"), self._graph.count(NODES)
        )
        self._graph.store(value, self._shaped(node, value), is_scratch=True)

    def _flat_rows(self, view: View) -> fx.Node:
        """[number of rows, size] the numbers of a view, with stretched dimensions repeated."""
        node = self._graph.stretched(self._graph.view(view), view)
        if len(view.shape) == 1:
            return node
        return self._graph.method(
            "reshape", node, self._graph.count(view.space), math.prod(view.shape)
        )

    def _shaped(self, node: fx.Node, value: Value) -> fx.Node:
        """Rows of numbers in the shape of a value."""
        if len(value.shape) == 1:
            return node
        return self._graph.method("view", node, self._graph.count(value.space), *value.shape)

    def _integer(self, value: Value) -> None:
        kind = "edge_count" if value.operation is op.COUNT_EDGES else "integer"
        self._graph.store(
            value, self._shaped_integer(self._graph.argument(kind, (value.name, "")), value)
        )

    def _shaped_integer(self, node: fx.Node, value: Value) -> fx.Node:
        if not value.shape:
            return node
        return self._graph.method("view", node, self._graph.count(value.space), *value.shape)

    def _pull(self, value: Value) -> None:
        pulled = self._graph.argument("pulled", ("pulled", value.name))
        args = self._graph.argument("like"), self._graph.count(NODES), value.size
        self._graph.store(value, self._shaped(self._graph.call(pull, pulled, *args), value))

    def _mean(self, value: Value) -> None:
        self._graph.compute(value, torch.mean, self._graph.view(value.inputs[0]), 0, keepdim=True)

    def _reduce(self, value: Value) -> None:
        (view,) = value.inputs
        dims = [d for d, (a, b) in enumerate(zip(view.shape, value.shape, strict=True)) if a != b]
        node = self._graph.stretched(self._graph.view(view, range(len(view.shape))), view)
        if not dims:
            self._graph.store(value, self._graph.method("clone", node))
            return
        function = torch.sum if value.operation is op.REDUCE_SUM else torch.amax
        dims = [dim + 1 for dim in dims]
        is_ordered = is_in_order(view)
        self._graph.compute(value, function, node, dims, keepdim=True, is_ordered=is_ordered)

    def _multiply(self, value: Value) -> None:
        self._product(value, value, None)

    def _product(self, value: Value, product: Value, added: View | None) -> None:
        """x @ weight, with a bias or rows added to it."""
        x, weight, *bias = product.inputs
        kind = "transposed" if product.operation is op.MULTIPLY_TRANSPOSED else "weight"
        right = self._graph.argument(kind, ("constant", weight.value.name))
        left = self._graph.view(x)
        if bias:
            self._graph.compute(value, torch.addmm, self._graph.view(bias[0]), left, right)
        elif added is not None:
            rows, apart = (
                self._graph.view(added),
                self._graph.memory(x) != self._graph.memory(added),
            )
            self._graph.compute(
                value, torch.addmm, rows, left, right, reuse=[added] if apart else ()
            )
        else:
            self._graph.compute(value, torch.mm, left, right)

    def _add(self, value: Value) -> None:
        products = [v for v in value.inputs if self._into.get(v.value) is value]
        if products:
            (added,) = (v for v in value.inputs if v.value is not products[0].value)
            self._product(value, products[0].value, added)
        else:
            self._elementwise(value)

    def _assemble(self, value: Value) -> None:
        """Adds up the gradients of the views of a value."""
        regions: tuple[View, ...] = value.number
        names = first_copied(value, regions)
        regions = tuple(
            View(value, old.space, old.shape, old.steps, old.offset, old.row) for old in regions
        )
        pairs = list(zip(regions, value.inputs, strict=True))
        if names is not None and set(names) == {"copy"} and self._join(value, pairs):
            return
        whole = [
            (region, grad)
            for region, grad in pairs
            if covers(region, grad) and not any(stretched_dims(grad))
        ][:2]
        if len(whole) == 2:
            self._graph.compute(value, torch.add, *(self._graph.view(grad) for _, grad in whole))
            for pair in whole:
                pairs.remove(pair)
            names = ["accumulate"] * len(pairs)
        else:
            out = self._graph.target(value)
            if out is None:
                out = self._graph.new("new_empty", value)
            self._graph.tensors[value] = out
            if names is None:
                self._graph.method("zero_", out)
                names = ["accumulate"] * len(pairs)
        for (region, grad), name in zip(pairs, names, strict=True):
            target = self._graph.view(region)
            if name == "copy":
                self._graph.method("copy_", target, self._graph.view(grad))
            else:
                self._graph.method("add_", target, self._reduced(grad, region))

    def _join(self, value: Value, pairs: Sequence[tuple[View, View]]) -> bool:
        """Writes the gradients of columns that make up a value side by side, if they do."""
        cuts = [(columns_of(region), region, grad) for region, grad in pairs]
        spaces = {space for pair in pairs for space in (pair[0].space, pair[1].space)}
        if spaces != {value.space} or any(cut is None for cut, _, _ in cuts):
            return False
        cuts.sort(key=lambda cut: cut[0] or (0, 0))
        flat = [self._flat_rows(grad) for _, _, grad in cuts]
        if len(value.shape) == 1:
            self._graph.compute(value, torch.cat, flat, 1)
        else:
            self._graph.store(
                value, self._shaped(self._graph.call(torch.cat, flat, 1), value), is_scratch=True
            )
        return True

    def _reduced(self, grad: View, region: View) -> fx.Node:
        """A gradient, added up along the dimensions that its region stretches."""
        dims = [dim + 1 for dim, stretched in enumerate(stretched_dims(region)) if stretched]
        if not dims:
            return self._graph.view(grad)
        return self._graph.call(
            torch.sum, self._graph.stretched(self._graph.view(grad), grad), dims, keepdim=True
        )

    def _accumulate(self, value: Value) -> None:
        """Adds up the gradient of a constant over the rows of the group."""
        (grad,) = value.inputs
        region: View = value.number.expanded(value.shape)
        constant: Value = region.value
        sums = self._graph.argument("sums", ("accumulated", value.name))
        dims = [0, *(dim + 1 for dim, stretched in enumerate(stretched_dims(region)) if stretched)]
        node = self._graph.stretched(self._graph.view(grad), grad)
        shape = own_sizes(region)
        if region.offset == 0 and is_plain(region, shape) and math.prod(shape) == constant.size:
            total = self._graph.call(torch.sum, node, dims)
            self._graph.method("add_", sums, self._graph.method("reshape", total, constant.size))
            return
        total = self._graph.method(
            "reshape", self._graph.call(torch.sum, node, dims, keepdim=True), shape
        )
        flat = self._graph.narrowed(
            self._graph.method("view", sums, 1, -1), region.offset, constant.size
        )
        target = self._graph.method("as_strided", flat, shape, region.steps)
        self._graph.method("add_", target, total)

    def _look_up_add(self, value: Value) -> None:
        grad = self._flat_rows(value.inputs[0])
        sums = self._graph.argument("sums", ("table_grad", value.name))
        table = self._graph.method("view", sums, -1, value.size)
        self._graph.call(add_by_kind, table, self._graph.argument("kind"), grad)
