"""Programs: a cell's forward and backward over one group as straight-line code.

A cell is traced once, with the size of the group left open; autograd's part in the trace becomes
code as well. What is left of a group is a row of tensor operations: no modules, no autograd graph.
Everything stays as the cell says: a program is used only where it gave the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from graphfold.batching.lazy import Kind

aten = torch.ops.aten

#: Operations that only make a second handle of the same values.
_HANDLES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
#: Operations that tensors have as methods, which are called faster.
_METHODS = {
    aten.view.default: "view",
    aten._unsafe_view.default: "view",
    aten.t.default: "t",
    aten.expand.default: "expand",
    aten.unsqueeze.default: "unsqueeze",
    aten.sym_size.int: "size",
}


class Slot(NamedTuple):
    """One tensor that a cell reads.

    Args:
        how: "x", "stack", "rows", "sum", "previous", "edge", "ptr", "parent" or "child_count".
        name: of the field, the column or the part of x.
        like: a tensor of its dtype, device and trailing shape.
        per: what its rows belong to, "node" or "edge"; "ptr" for one row more than nodes.
        needs_grad: whether its gradient is wanted.
    """

    how: str
    name: str
    like: Tensor
    per: str
    needs_grad: bool


class Layout(NamedTuple):
    """What a program's backward returns after the gradients of the slots that need one.

    Args:
        uses: of each deferred use, its kind and the numbers of weight and bias; it returns the
            use's input and the gradient of its output.
        plain: the numbers of the parameters used otherwise; it returns their gradients.
    """

    uses: Sequence[tuple[Kind, int | None, int | None]] = ()
    plain: Sequence[int] = ()


class Program(NamedTuple):
    """Straight-line code for one group.

    Args:
        slots: what it reads.
        forward: (slots ..., parameters twice ...) -> outputs, then what backward is given.
        backward: (saved ..., gradients of the outputs ...) -> see `Layout`.
        layout: what backward returns.
        num_outputs: how many outputs there are, in the order of the cell's fields.
    """

    slots: tuple[Slot, ...]
    forward: Callable[..., list[Any]]
    backward: Callable[..., list[Tensor]]
    layout: Layout
    num_outputs: int


def split_program(
    graph: fx.Graph, num_grads: int, num_outputs: int
) -> tuple[Callable[..., list[Any]], Callable[..., list[Tensor]]]:
    """Cuts a traced graph in two.

    Args:
        graph: of a function (inputs ..., gradients of the outputs ...) -> (outputs ..., results
            ...), where the outputs do not depend on the gradients.
        num_grads: how many of its arguments are gradients.
        num_outputs: how many of what it returns are outputs.

    Returns:
        (inputs ...) -> (outputs ..., saved ...) and (saved ..., gradients ...) -> results.
    """
    _drop_handles(graph)
    (result,) = (node for node in graph.nodes if node.op == "output")
    returned = list(result.args[0])
    outputs, results = returned[:num_outputs], returned[num_outputs:]
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    num_inputs = len(arguments) - num_grads
    inputs, grads = arguments[:num_inputs], arguments[num_inputs:]
    forward = _ancestors(outputs) | set(inputs)
    backward = _ancestors(results) - forward - set(grads)
    used = [n for node in graph.nodes if node in backward for n in node.all_input_nodes]
    saved = [n for n in dict.fromkeys([*used, *_nodes(results)]) if n in forward]
    return (
        _function(graph, inputs, forward, [*outputs, *saved]),
        _function(graph, [*saved, *grads], backward, results),
    )


def _function(
    graph: fx.Graph, arguments: Sequence[fx.Node], inside: set[fx.Node], returned: Sequence[Any]
) -> Callable[..., Any]:
    """A function of its own from some nodes of a graph."""
    new, names = fx.Graph(), {}
    for node in arguments:
        names[node] = new.placeholder(node.name)
    for node in graph.nodes:
        if node in inside and node not in names:
            names[node] = new.node_copy(node, names.__getitem__)
            _quicken(names[node])
    new.output([names[n] if isinstance(n, fx.Node) else n for n in returned])
    new.eliminate_dead_code()
    function: Callable[..., Any] = fx.GraphModule(torch.nn.Module(), new).forward
    return function


def _quicken(node: fx.Node) -> None:
    """Lets a node call what is quickest among the names of the same operation."""
    if node.target in _METHODS:
        node.op, node.target = "call_method", _METHODS[node.target]
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    packet = node.target.overloadpacket
    function = getattr(torch, packet.__name__, None)
    plain = packet.__module__.endswith("aten") and not packet.__name__.startswith("_")
    if plain and isinstance(function, type(torch.mm)):
        node.target = function


def _drop_handles(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        # Autograd multiplies by the factor of an addcmul, which is one.
        times_one = node.target == aten.mul.Scalar and node.args[1] == 1
        if node.target in _HANDLES or times_one:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _ancestors(nodes: Sequence[Any]) -> set[fx.Node]:
    """The nodes and all that they are computed from."""
    stack, found = _nodes(nodes), set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _nodes(values: Sequence[Any]) -> list[fx.Node]:
    return [value for value in values if isinstance(value, fx.Node)]
