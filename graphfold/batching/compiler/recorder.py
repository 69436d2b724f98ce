"""Recorder: the operations of torch that some code calls, as a graph."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from graphfold import _torch
from graphfold._torch import handling_operations, is_fake
from graphfold.batching.compiler.guard import Guard
from graphfold.batching.compiler.values import Untraceable


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, h: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A GRU after its two products, equations as in `torch.nn.GRUCell`.

    Shape:
        input_gates, hidden_gates: [num_rows, 3 * hidden_size], the parts r, z and n
        h: [num_rows, hidden_size]
        returns: [num_rows, hidden_size], and what torch's own backward would read
    """
    from_x, from_h = (own.chunk(3, dim=1) for own in _biased(input_gates, hidden_gates, *biases))
    r, z = (torch.sigmoid(from_x[part] + from_h[part]) for part in (0, 1))
    n = torch.tanh(from_x[2] + r * from_h[2])
    return n + z * (h - n), n


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, c: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM after its two products, equations as in `torch.nn.LSTMCell`.

    Shape:
        input_gates, hidden_gates: [num_rows, 4 * hidden_size], the parts i, f, g and o
        c: [num_rows, hidden_size]
        returns: h and c, [num_rows, hidden_size], and what torch's own backward would read
    """
    from_x, from_h = _biased(input_gates, hidden_gates, *biases)
    gates = from_x + from_h
    i, f, g, o = gates.chunk(4, dim=1)
    new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new), new, gates


def _biased(x: Tensor, h: Tensor, *biases: Tensor | None) -> list[Tensor]:
    x_bias, h_bias = biases or (None, None)
    return [x if x_bias is None else x + x_bias, h if h_bias is None else h + h_bias]


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """The softmax along a dimension; the maximum only keeps it finite, so it has no derivative."""
    weight = (x - x.amax(dim, keepdim=True).detach()).exp()
    return weight / weight.sum(dim, keepdim=True)


def layer_norm(
    x: Tensor, sizes: Sequence[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Ba et al. (2016), https://arxiv.org/abs/1607.06450, equation 3; the mean and the scale."""
    dims = [*range(-len(sizes), 0)]
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    scale = ((centred * centred).mean(dims, keepdim=True) + epsilon).rsqrt()
    scaled = centred * scale if weight is None else centred * scale * weight
    return scaled if bias is None else scaled + bias, mean, scale


#: Name of an operation -> the function that computes the same.
DECOMPOSITIONS: Mapping[str, Callable[..., Any]] = {
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_softmax": softmax,
    "stack": lambda parts, dim=0: torch.cat([part.unsqueeze(dim) for part in parts], dim),
    "native_layer_norm": layer_norm,
    "log_sigmoid_forward": lambda x: (-nn.functional.softplus(-x), x),
}

aten = torch.ops.aten

#: More operations than any cell needs that does not loop over rows.
MAX_OPERATIONS = 10_000
#: Views that cut a tensor along a dimension.
_CUTS = ("select", "unbind", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")


class Recorder:
    """Every operation that it is handed becomes a node of `graph`.

    Tensors that are neither arguments nor results of recorded operations, such as parameters,
    become constants.

    Args:
        row_dim: gives the dimension of a tensor that has a row for each node or edge, or None. Such
            a tensor has its rows one after the other, unless it is a view, so views are told by
            their strides.
        guard: what keeps numbers from the code that is recorded.
        differentiate: whether gradients are wanted, so that it matters where they are off.

    Attributes:
        graph: what has been recorded.
        constants: name in the graph -> the tensor itself.
        made: all that has been computed.
    """

    def __init__(
        self, row_dim: Callable[[Tensor], int | None], guard: Guard, differentiate: bool
    ) -> None:
        self.graph = fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self.made: list[weakref.ref[Tensor]] = []
        self._held: list[Tensor] = []  # so that no other tensor gets the identity of one
        self._nodes: dict[int, fx.Node] = {}
        self._row_dim, self._guard, self._differentiate = row_dim, guard, differentiate
        self._num_operations = 0

    def run(self, function: Callable[..., Sequence[Tensor]], arguments: Sequence[Tensor]) -> None:
        """Records what a function does with tensors without numbers, the graph's arguments."""
        for number, tensor in enumerate(arguments):
            self._note(tensor, self.graph.placeholder(f"argument_{number}"))
        with handling_operations(self.record):
            returned = function(*arguments)
        self.graph.output([self.node_of(tensor) for tensor in returned])

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls an operation and notes the call."""
        was_paused, self._guard.is_paused = self._guard.is_paused, True
        try:
            decomposition = DECOMPOSITIONS.get(func.overloadpacket.__name__)
            if decomposition is None:
                return self._record(func, args, kwargs)
            with handling_operations(self.record):
                return decomposition(*args, **kwargs)
        finally:
            self._guard.is_paused = was_paused

    def _record(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        changed = args[0] if args and _torch.is_mutating(func) else None
        if isinstance(changed, Tensor) and not is_fake(changed):
            return self._count(func, changed, args[1:])
        map_aggregate((args, kwargs), self._refuse_computed)
        self._refuse_cut(func, args)
        result = func(*args, **kwargs)
        if changed is None and not gives_views(func):
            result = map_aggregate(result, self._rows_in_order)
        parts = result if isinstance(result, (list, tuple)) else [result]
        if not any(isinstance(part, Tensor) for part in parts):
            return result  # a size, a device
        given: Any = map_aggregate(
            (args, kwargs), lambda own: self.node_of(own) if isinstance(own, Tensor) else own
        )
        node = self._call(func, given[0], given[1], result)
        without_grad = self._differentiate and not torch.is_grad_enabled()
        if without_grad and changed is not None:
            raise Untraceable("it changes a tensor in place where gradients are off")
        for number, part in enumerate(parts):
            if isinstance(part, Tensor):
                one = node
                if part is not result:
                    one = self._call(operator.getitem, (node, number), {}, part)
                if without_grad and part.is_floating_point():
                    one = self._call(aten.detach.default, (one,), {}, part)
                self._note(part, one)
        return result

    def _call(self, func: Any, args: Any, kwargs: Any, result: Any) -> fx.Node:
        """A node for a call."""
        self._num_operations += 1
        if self._num_operations > MAX_OPERATIONS:
            raise Untraceable(f"it calls more than {MAX_OPERATIONS:,} operations, as in a loop")
        node = self.graph.call_function(func, args, kwargs)
        node.meta["val"], node.meta["place"] = result, self._guard.find_place()
        return node

    def _refuse_cut(self, func: Any, args: tuple[Any, ...]) -> None:
        """Refuses single rows at once: who loops over them would do so for very long."""
        name = func.overloadpacket.__name__
        if name not in _CUTS or not is_fake(args[0]):
            return
        dim = dict(zip(_torch.argument_names(func), args, strict=False)).get("dim", 0)
        if dim % args[0].dim() == self._row_dim(args[0]):
            raise Untraceable("it works across the nodes of a group, or takes single ones of them")

    def _count(self, func: Any, counter: Tensor, given: tuple[Any, ...]) -> Tensor:
        """Notes a count of calls, which is all that may happen to a tensor of the code."""
        is_count = func.overloadpacket is torch.ops.aten.add_ and counter.dim() == 0
        if not is_count or counter.is_floating_point() or [type(n) for n in given] != [int]:
            raise Untraceable("it changes a tensor of its own in place, such as a buffer")
        self._guard.counters.append((counter, given[0]))
        return counter

    def _refuse_computed(self, value: Any) -> Any:
        is_own = not isinstance(value, Tensor) or is_fake(value)
        if any(value is counter for counter, _ in self._guard.counters):
            raise Untraceable("it reads how often it has been called")
        if not is_own and value.requires_grad and not value.is_leaf:
            raise Untraceable(
                f"it reads a tensor of shape {list(value.shape)} that requires a gradient and "
                "is neither an argument nor a registered parameter"
            )
        return value

    def _rows_in_order(self, value: Any) -> Any:
        """A tensor with its rows one after the other, whichever dimension counts them."""
        dim = self._row_dim(value) if isinstance(value, Tensor) else None
        if dim is None or (dim == 0 and value.is_contiguous()):  # nearly all: no operation
            return value
        return value.movedim(dim, 0).contiguous().movedim(0, dim)

    @property
    def has_hooks(self) -> bool:
        """True if hooks have been registered on tensors that are computed."""
        given = self.constants.values()
        computed = (tensor for tensor in self._held if not any(tensor is one for one in given))
        return any(map(_torch.has_hooks, computed))

    def node_of(self, tensor: Tensor) -> fx.Node:
        """The node of a tensor."""
        if id(tensor) not in self._nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = tensor
            self._note(tensor, self.graph.create_node("get_attr", name, name=name))
        return self._nodes[id(tensor)]

    def _note(self, tensor: Tensor, node: fx.Node) -> None:
        self._held.append(tensor)
        if is_fake(tensor):
            self.made.append(weakref.ref(tensor))
        self._nodes[id(tensor)] = node
        node.meta["val"] = tensor


#: Operations that give views and do not say so.
_UNDECLARED = ("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes")


def shares_memory(operation: Any) -> bool:
    """True if the schema of an operation allows its result to be a view of its argument."""
    schema = getattr(operation, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return any(result.alias_info is not None for result in schema.returns)


def gives_views(operation: Any) -> bool:
    """True if what an operation gives lies where its first argument does."""
    packet = getattr(operation, "overloadpacket", None)
    return shares_memory(operation) or getattr(packet, "__name__", "") in _UNDECLARED
