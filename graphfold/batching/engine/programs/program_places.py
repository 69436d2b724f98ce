"""Where a program's operations write: into the buffers, and over what is read for the last time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.regions import place_result
from graphfold.batching.engine.programs.program_rewrites import (
    VIEWS,
    may_share_memory,
    same_shape,
)


def write_outputs(
    copies: Sequence[fx.Node],
    outputs: Sequence[tuple[fx.Node, torch.dtype]],
    places: Sequence[fx.Node],
    names: Mapping[fx.Node, fx.Node],
    returned: Sequence[Any],
) -> list[fx.Node]:
    """Lets outputs be written to their places; gives what has to be kept for that.

    Args:
        copies: the outputs in the function's own graph.
        outputs: the outputs in the whole graph, with the dtypes of their places.
        places: the places.
        names: node of the whole graph -> what it is in the function, if it is one operation there.
        returned: what the function returns.
    """
    written: set[fx.Node] = set()
    kept = []
    for copy, (node, dtype), place in zip(copies, outputs, places, strict=True):
        if node not in written and node not in names and node.meta["val"].dtype == dtype:
            place_result(copy, place)
        elif node not in written and node in names and _has_out(node, copy, dtype):
            for other in (node, *_overwritten(node, returned, names)):
                names[other].kwargs = {**names[other].kwargs, "out": place}
        else:
            copy = copy.graph.call_method("copy_", (place, copy))
        written.add(node)
        kept.append(copy)
    return kept


def _overwritten(
    node: fx.Node, returned: Sequence[Any], names: Mapping[fx.Node, fx.Node]
) -> Iterator[fx.Node]:
    """What an output is computed from, element by element, and nothing else needs.

    The place of the output can hold it until then.
    """
    while torch.Tag.pointwise in getattr(node.target, "tags", ()):
        value = node.meta["val"]
        single = [n for n in node.all_input_nodes if len(n.users) == 1 and n not in returned]
        fitting = [
            n
            for n in single
            if n in names
            and isinstance(n.meta.get("val"), Tensor)
            and same_shape(n.meta["val"], value)
            and _has_out(n, names[n], value.dtype)
        ]
        if not fitting:
            return
        node = fitting[0]
        yield node


def reuse_memory(graph: fx.Graph) -> None:
    """Lets operations write their results over what is read here for the last time."""
    for node in graph.nodes:
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()) or "out" in node.kwargs:
            continue
        free = [read for read in node.all_input_nodes if _is_free(read, node)]
        if free and _has_out(node, node, node.meta["val"].dtype):
            node.kwargs = {**node.kwargs, "out": free[0]}


def _is_free(read: fx.Node, node: fx.Node) -> bool:
    """Whether what a node reads is memory of its size that nothing else has a hold of."""
    made, value = read.meta.get("val"), node.meta["val"]
    if read.op != "call_function" or len(read.users) > 1 or _is_placed(read):
        return False
    if not isinstance(read.target, torch._ops.OpOverload) or read.target in VIEWS:
        return False
    if may_share_memory(read) and "out" not in read.kwargs:
        return False
    if not isinstance(made, Tensor) or made.dtype != value.dtype or not made.is_contiguous():
        return False
    return same_shape(made, value)


def _is_placed(node: fx.Node) -> bool:
    """Whether a node writes into the buffers."""
    place = node.kwargs.get("out")
    return isinstance(place, fx.Node) and place.op == "placeholder"


def _has_out(node: fx.Node, copy: fx.Node, dtype: torch.dtype) -> bool:
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
