"""Products of a program: weights are packed once per pass, and children read where they lie."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from graphfold.batching.engine.programs.fusion.lanes import rows_of
from graphfold.batching.engine.programs.program import Slot
from graphfold.batching.engine.programs.program_rewrites import VIEWS
from graphfold.batching.kernels.c_kernels import REALS
from graphfold.batching.kernels.products import MAX_PARTS, Apart, multiply, pack

aten = torch.ops.aten


def pack_weights(graph: fx.Graph, fixed: set[fx.Node]) -> None:
    """Lets products of the rows of a group be computed by `kernels.products`.

    Args:
        graph: of a traced cell.
        fixed: its nodes that depend on parameters alone, which weights and biases have to be.
    """
    packed: dict[tuple[fx.Node, ...], fx.Node] = {}
    for node in list(graph.nodes):
        factors = _factors(node)
        if factors is None or not fixed.issuperset(factors[1:]):
            continue
        x, key = factors[0], factors[1:]
        if key not in packed:
            with graph.inserting_before(node):
                packed[key] = graph.call_function(pack, key)
        node.target, node.args = multiply, (x, packed[key])
        _take_relu(graph, node)


def _take_relu(graph: fx.Graph, product: fx.Node) -> None:
    """Lets a product take the relu along that is all that reads it; see `simplify` for its name."""
    (reader, *others) = product.users or (None,)
    if reader is None or others or reader.target != aten.clamp_min.default or reader.args[1] != 0:
        return
    reader.target, reader.args = multiply, (*product.args, True)
    graph.erase_node(product)


def _factors(node: fx.Node) -> tuple[fx.Node, ...] | None:
    """What a product of a group's rows is of: x and a weight, and a bias if there is one."""
    arguments: Any = node.args
    if node.kwargs or node.target not in (aten.mm.default, aten.addmm.default):
        return None
    *bias, x, weight = arguments
    values = [n.meta["val"] for n in (x, weight, *bias)]
    is_known = all(value.is_cpu and value.dtype in REALS for value in values)
    columns = values[1].shape[1:]
    has_bias = all(value.shape == columns for value in values[2:])  # not one number for all
    return (x, weight, *bias) if is_known and has_bias and rows_of(values[0]) else None


def leave_apart(
    read: Sequence[fx.Node], slots: Sequence[Slot], seen: Collection[fx.Node]
) -> list[Slot]:
    """Leaves children where they lie if only products read them.

    Args:
        read: the arguments that stand for slots of a graph after `pack_weights`.
        slots: those of a cell.
        seen: what the graph returns to those who want tensors.

    Returns:
        The slots as the code reads them.
    """
    found = []
    for node, slot in zip(read, slots, strict=True):
        if slot.how == "rows" and slot.per == "edge" and _is_only_multiplied(node, seen):
            slot = slot._replace(is_apart=True)
            for view in [user for user in node.users if user.target in VIEWS]:
                num_parts = view.meta["val"].shape[1] // slot.like.shape[1]
                view.target, view.args = Apart.joined, (node, num_parts)
        found.append(slot)
    return found


def _is_only_multiplied(node: fx.Node, seen: Collection[fx.Node]) -> bool:
    """Whether all that is done with children is to join and to multiply them."""
    width = node.meta["val"].shape[-1]
    if node in seen or not width:
        return False
    return all(_multiplies(user, node) or _joins(user, width, seen) for user in node.users)


def _joins(view: fx.Node, width: int, seen: Collection[fx.Node]) -> bool:
    """Whether a view lays the rows of children side by side, so that they are multiplied."""
    if view.target not in VIEWS or view in seen or view.meta["val"].dim() != 2:
        return False
    num_parts, rest = divmod(view.meta["val"].shape[1], width)
    return not rest and num_parts <= MAX_PARTS and all(_multiplies(u, view) for u in view.users)


def _multiplies(user: fx.Node, x: fx.Node) -> bool:
    """Whether a user multiplies x by a packed weight, or notes it as what was multiplied."""
    return user.op == "output" or (user.target is multiply and user.args[0] is x)
