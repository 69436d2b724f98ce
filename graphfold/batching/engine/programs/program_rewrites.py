"""What is done to the graph of a traced cell so that its code is short and writes in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx

from graphfold.batching.kernels import row_blocks
from graphfold.batching.kernels.opaque import function_of
from graphfold.batching.kernels.tanh import tanh

aten = torch.ops.aten

#: Operations that only make a second handle of the same values.
_HANDLES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
_VIEWS = (aten.view.default, aten._unsafe_view.default)
#: Operations that tensors have as methods, which are called faster.
_METHODS = {
    aten.view.default: "view",
    aten._unsafe_view.default: "view",
    aten.t.default: "t",
    aten.expand.default: "expand",
    aten.unsqueeze.default: "unsqueeze",
    aten.squeeze.dims: "squeeze",
    aten.sym_size.int: "size",
}
#: Products of the rows of a group with a weight.
_PRODUCTS: dict[Any, Callable[..., Tensor]] = {aten.addmm: row_blocks.addmm, aten.mm: row_blocks.mm}


def undo_changes(graph: fx.Graph) -> None:
    """Replaces changes in place by new values.

    Raises:
        ValueError: if something else may see the change: the graph does not say so.
    """
    place = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        changed, new = node.args[0], _out_of_place(node.target)
        others = [user for user in changed.users if user is not node]
        is_seen = any(place[user] > place[node] or _is_view(user) for user in others)
        if new is None or is_seen or changed.op == "placeholder" or _is_view(changed):
            raise ValueError(f"it changes a tensor in place ({node.target})")
        node.target = new


def _is_view(node: fx.Node) -> bool:
    """Whether a node may have the memory of what it is computed from."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _out_of_place(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that gives what another one writes into its first argument."""
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    found = getattr(getattr(aten, name, None), target._overloadname, None)
    return None if found is None or found is target else cast(torch._ops.OpOverload, found)


def simplify(graph: fx.Graph) -> None:
    """Leaves out what does nothing."""
    for node in list(graph.nodes):
        if node.target == aten.relu.default:  # the same under a name that can write into a place
            node.target, node.args = aten.clamp_min.default, (*node.args, 0)
        if node.target in _VIEWS and node.args[0].target in _VIEWS:  # the last shape is what counts
            node.args = (node.args[0].args[0], *node.args[1:])
        if node.target == aten.sum.dim_IntList and _sums_nothing(*node.args):
            node.target, node.args = aten.squeeze.dims, node.args[:2]
        # Autograd multiplies by the factor of an addcmul, which is one.
        times_one = node.target == aten.mul.Scalar and node.args[1] == 1
        if node.target in _HANDLES or times_one:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _sums_nothing(x: fx.Node, dims: Sequence[int], keepdim: bool = False) -> bool:
    """Whether a sum runs over dimensions of size one, as over the only child of a chain."""
    sizes = [x.meta["val"].shape[dim] for dim in dims]
    return not keepdim and all(isinstance(size, int) and size == 1 for size in sizes)


def has_out(node: fx.Node, copy: fx.Node, dtype: torch.dtype) -> bool:
    """Whether an operation can write its result, of this dtype, into a tensor that is there."""
    target = node.target
    if copy.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    writer = _writer(target)
    if writer is None or node.meta["val"].dtype != dtype:
        return False
    if copy.target is target:
        copy.target = writer
    return True


def _writer(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload with the same arguments and `out`; none that computes a result and copies it."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        found = getattr(target.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments if a.name != "out"]
        is_writer = torch.Tag.out in found.tags and torch.Tag.generated not in found.tags
        if is_writer and arguments == wanted:
            return cast(torch._ops.OpOverload, found)
    return None


def quicken(node: fx.Node, faster: bool = True) -> None:
    """Lets a node call what is quickest among the names of the same operation.

    Args:
        node: of a function that is about to become code.
        faster: whether graphfold's kernels that round otherwise than torch's are among them.
    """
    if node.target in _METHODS:
        node.op, node.target = "call_method", _METHODS[node.target]
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    if (stands_for := function_of(node.target)) is not None:
        node.target = stands_for
        return
    packet = node.target.overloadpacket
    if packet in _PRODUCTS and isinstance(node.meta["val"].shape[0], torch.SymInt):
        node.target = _PRODUCTS[packet]
        return
    if packet is aten.tanh and faster:
        node.target = tanh
        return
    function = getattr(torch, packet.__name__, None)
    plain = packet.__module__.endswith("aten") and not packet.__name__.startswith("_")
    if plain and isinstance(function, type(torch.mm)):
        node.target = function
