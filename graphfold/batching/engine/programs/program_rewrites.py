"""What is done to the graph of a traced cell so that its code is short and quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.lanes import rows_of
from graphfold.batching.engine.programs.program import Slot
from graphfold.batching.kernels import row_blocks
from graphfold.batching.kernels.opaque import function_of
from graphfold.batching.kernels.tanh import tanh

aten = torch.ops.aten

#: Operations that only make a second handle of the same values.
_HANDLES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
VIEWS = (aten.view.default, aten._unsafe_view.default)
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
#: Operations on the rows of a group -> our kernels for them.
_FASTER: dict[Any, Callable[..., Tensor]] = {
    aten.addmm: row_blocks.addmm,
    aten.mm: row_blocks.mm,
    aten.tanh: tanh,
}


#: What another operation of the same name gives that changes nothing, with the same numbers.
_UNCHANGED = {aten.bernoulli_.float: aten.bernoulli.p}


def is_random(node: fx.Node) -> bool:
    """Whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


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
        is_seen = any(place[user] > place[node] or may_share_memory(user) for user in others)
        if new is None or is_seen or changed.op == "placeholder" or may_share_memory(changed):
            raise ValueError(f"it changes a tensor in place ({node.target})")
        node.target = new


def may_share_memory(node: fx.Node) -> bool:
    """Whether a node may have the memory of what it is computed from."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _out_of_place(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that gives what another one writes into its first argument."""
    if target in _UNCHANGED:
        return _UNCHANGED[target]
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    found = getattr(getattr(aten, name, None), target._overloadname, None)
    return None if found is None or found is target else cast(torch._ops.OpOverload, found)


def simplify(graph: fx.Graph) -> None:
    """Leaves out what does nothing."""
    for node in list(graph.nodes):
        if node.target == aten.relu.default:  # the same under a name that can write into a place
            node.target, node.args = aten.clamp_min.default, (*node.args, 0)
        if node.target in VIEWS and node.args[0].target in VIEWS:  # the last shape is what counts
            node.args = (node.args[0].args[0], *node.args[1:])
        if node.target == aten.sum.dim_IntList and _sums_nothing(*node.args):
            node.target, node.args = aten.squeeze.dims, node.args[:2]
        # Autograd multiplies by the factor of an addcmul, which is one.
        times_one = node.target == aten.mul.Scalar and node.args[1] == 1
        if node.target in _HANDLES or times_one or _keeps_shape(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target in VIEWS or node.target == aten.expand.default:
            _leave_size_open(node)
    for node in reversed(list(graph.nodes)):  # the sizes and views that nobody asks for any more
        is_size = isinstance(node.meta.get("val"), torch.SymInt) and node.op == "call_function"
        if (is_size or node.target in VIEWS) and not node.users:
            graph.erase_node(node)


def _keeps_shape(node: fx.Node) -> bool:
    """Whether it is a view of the shape that is there."""
    if node.target not in VIEWS:
        return False
    return same_shape(node.all_input_nodes[0].meta["val"], node.meta["val"])


def same_shape(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of a trace always have one shape.

    Sizes are compared by name: to compare an open one with a number would settle it.
    """
    return list(map(str, one.shape)) == list(map(str, other.shape))


def _leave_size_open(node: fx.Node) -> None:
    """Lets a view or an expanded tensor find its one open size itself."""
    source, sizes = cast(tuple[fx.Node, Sequence[Any]], node.args[:2])
    if sum(isinstance(size, fx.Node) for size in sizes) != 1 or 0 in sizes:
        return
    if node.target == aten.expand.default:  # there it means a size that stays as it is
        old, new = source.meta["val"], node.meta["val"]
        if old.dim() != new.dim() or rows_of(old) is None or rows_of(old) != rows_of(new):
            return
    node.args = source, [-1 if isinstance(size, fx.Node) else size for size in sizes]


def _sums_nothing(x: fx.Node, dims: Sequence[int], keepdim: bool = False) -> bool:
    """Whether a sum runs over dimensions of size one, as over the only child of a chain."""
    sizes = [x.meta["val"].shape[dim] for dim in dims]
    return not keepdim and all(isinstance(size, int) and size == 1 for size in sizes)


def lay_flat(graph: fx.Graph, read: Sequence[fx.Node], slots: Sequence[Slot]) -> list[Slot]:
    """Leaves children in the order of edges where nothing asks for them side by side.

    Args:
        graph: whose nodes `read` are what is in the slots.
        read: its arguments that stand for slots.
        slots: those of a cell.

    Returns:
        The slots as the code reads them.
    """
    found = []
    for node, slot in zip(read, slots, strict=True):
        if slot.per == "child" and all(user.target in VIEWS for user in node.users):
            slot = slot._replace(per="edge")
            for user in list(node.users):
                if user.args[1] == [-1, *slot.like.shape[1:]]:  # that is how they lie
                    user.replace_all_uses_with(node)
                    node.meta = dict(user.meta)
                    graph.erase_node(user)
        found.append(slot)
    return found


def without_views(results: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """The gradients of slots first, those of children in any shape: who takes them knows it."""
    found = list(results)
    for index, slot in enumerate(slot for slot in slots if slot.needs_grad):
        while slot.how == "rows" and found[index].target in VIEWS:
            if rows_of(found[index].args[0].meta["val"]) is None:
                break
            found[index] = found[index].args[0]
    return found


def has_own_kernel(node: fx.Node) -> bool:
    """Whether graphfold has a kernel for an operation on the rows of a group."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _FASTER and rows_of(node.meta["val"]) is not None


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
    if faster and has_own_kernel(node):
        node.target = _FASTER[packet]
        return
    function = getattr(torch, packet.__name__, None)
    plain = packet.__module__.endswith("aten") and not packet.__name__.startswith("_")
    if plain and isinstance(function, type(torch.mm)):
        node.target = function
