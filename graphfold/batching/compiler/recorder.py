"""Recorder: the operations of torch that some code calls, as a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate

from graphfold._torch import handling_operations, is_fake
from graphfold.batching.compiler.values import Untraceable


class Recorder:
    """Every operation that it is handed becomes a node of `graph`.

    Tensors that are neither arguments nor results of recorded operations, such as parameters,
    become constants.

    Args:
        arguments: the tensors that stand for the graph's arguments.
        num_rows: the first sizes of what has a row for each node or edge. It is contiguous, unless
            it is a view, so views are told by their strides.

    Attributes:
        graph: what has been recorded.
        constants: name in the graph -> the tensor itself.
        counted: tensors of the code that count its calls, each with what a call adds.
    """

    def __init__(self, arguments: Sequence[Tensor], num_rows: Collection[int]) -> None:
        self.graph = fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self.counted: list[tuple[Tensor, int]] = []
        self._held: list[Tensor] = []  # so that no other tensor gets the identity of one
        self._nodes: dict[int, fx.Node] = {}
        self._num_rows = num_rows
        for number, tensor in enumerate(arguments):
            self._note(tensor, self.graph.placeholder(f"argument_{number}"))

    def record(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls an operation and notes the call."""
        changed = args[0] if args and func._schema.is_mutable else None  # type: ignore[attr-defined]
        if isinstance(changed, Tensor) and not is_fake(changed):
            return self._count(func, changed, args[1:])
        map_aggregate((args, kwargs), self._refuse_computed)
        result = func(*args, **kwargs)
        if changed is None and not gives_views(func):
            result = map_aggregate(result, self._contiguous)
        parts = result if isinstance(result, (list, tuple)) else [result]
        if not any(isinstance(part, Tensor) for part in parts):
            return result  # a size, a device
        given: Any = [map_aggregate(each, self._node_or_value) for each in (args, kwargs)]
        node = self.graph.call_function(func, given[0], given[1])
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self._note(result, node)
        elif isinstance(result, (list, tuple)):
            for number, part in enumerate(result):
                if isinstance(part, Tensor):
                    self._note(part, self.graph.call_function(operator.getitem, (node, number)))
        return result

    def _count(self, func: Any, counter: Tensor, given: tuple[Any, ...]) -> Tensor:
        """Notes a count of calls, which is all that may happen to a tensor of the code."""
        is_count = func.overloadpacket is torch.ops.aten.add_ and counter.dim() == 0
        if not is_count or counter.is_floating_point() or [type(n) for n in given] != [int]:
            raise Untraceable("it changes a tensor of its own in place, such as a buffer")
        self.counted.append((counter, given[0]))
        return counter

    def _refuse_computed(self, value: Any) -> Any:
        is_own = not isinstance(value, Tensor) or is_fake(value)
        if any(value is counter for counter, _ in self.counted):
            raise Untraceable("it reads how often it has been called")
        if not is_own and value.requires_grad and not value.is_leaf:
            raise Untraceable(
                f"it reads a tensor of shape {list(value.shape)} that requires a gradient and "
                "is neither an argument nor a registered parameter"
            )
        return value

    def _contiguous(self, value: Any) -> Any:
        has_rows = isinstance(value, Tensor) and value.dim() and value.shape[0] in self._num_rows
        return value.contiguous() if has_rows else value

    @property
    def has_hooks(self) -> bool:
        """True if hooks have been registered on tensors that are computed."""
        given = self.constants.values()
        computed = (tensor for tensor in self._held if not any(tensor is one for one in given))
        return any(tensor._backward_hooks for tensor in computed)

    def node_of(self, tensor: Tensor) -> fx.Node:
        """The node of a tensor."""
        if id(tensor) not in self._nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = tensor
            self._note(tensor, self.graph.create_node("get_attr", name, name=name))
        return self._nodes[id(tensor)]

    def _node_or_value(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, Tensor) else value

    def _note(self, tensor: Tensor, node: fx.Node) -> None:
        self._held.append(tensor)
        self._nodes[id(tensor)] = node
        node.meta["val"] = tensor


def record(
    function: Callable[..., Sequence[Tensor]],
    arguments: Sequence[Tensor],
    num_rows: Collection[int],
) -> Recorder:
    """The graph of a function of tensors without numbers; see `Recorder`."""
    recorder = Recorder(arguments, num_rows)
    with handling_operations(recorder.record):
        returned = function(*arguments)
    recorder.graph.output([recorder.node_of(tensor) for tensor in returned])
    return recorder


#: Operations that give views and do not say so.
_UNDECLARED = ("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes")


def shares_memory(operation: Any) -> bool:
    """True if an operation says that it may give what it is given in another arrangement."""
    schema = getattr(operation, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return any(result.alias_info is not None for result in schema.returns)


def gives_views(operation: Any) -> bool:
    """True if what an operation gives lies where its first argument does."""
    packet = getattr(operation, "overloadpacket", None)
    return shares_memory(operation) or getattr(packet, "__name__", "") in _UNDECLARED
