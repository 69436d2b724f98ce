"""Where a program's operations write: to places made for it, or over what is not read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.regions import place_result
from graphfold.batching.engine.programs.program_rewrites import (
    VIEWS,
    has_own_kernel,
    may_share_memory,
    same_shape,
)
from graphfold.batching.kernels.products import multiply

aten = torch.ops.aten


class Output(NamedTuple):
    """What is written to a place.

    Args:
        node: of the whole graph.
        dtype: of the place.
        row: the shape of a row of the place, which may hold another number of rows.
    """

    node: fx.Node
    dtype: torch.dtype
    row: tuple[int, ...]


def write_outputs(
    copies: Sequence[fx.Node],
    outputs: Sequence[Output],
    places: Sequence[fx.Node],
    names: Mapping[fx.Node, fx.Node],
    returned: Sequence[Any],
    faster: bool,
) -> list[fx.Node]:
    """Lets outputs be written to their places; gives what has to be kept for that.

    Args:
        copies: the outputs in the function's own graph.
        outputs: the outputs in the whole graph.
        places: the places.
        names: node of the whole graph -> what it is in the function, if it is one operation there.
        returned: what the function returns.
        faster: see `quicken`. Other products than ours have the cell's bits in new memory alone.
    """
    written: set[fx.Node] = set()
    kept = []
    for copy, (node, dtype, row), place in zip(copies, outputs, places, strict=True):
        shape, is_new = node.meta["val"].shape[1:], node not in written
        if 0 in (*shape, *row):
            continue
        if shape != row:
            with place.graph.inserting_after(place):
                place = place.graph.call_method("view", (place, [-1, *shape]))
        if is_new and node not in names and node.meta["val"].dtype == dtype:
            place_result(copy, place)
        elif is_new and names.get(node) is copy and _can_lie(copy, node, dtype, faster):
            for other in (node, *_overwritten(node, returned, names)):
                write_to(names[other], place)
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
    while is_pointwise(node):
        value = node.meta["val"]
        single = [n for n in node.all_input_nodes if len(n.users) == 1 and n not in returned]
        fitting = [
            n
            for n in single
            if n in names
            and isinstance(n.meta.get("val"), Tensor)
            and same_shape(n.meta["val"], value)
            and can_write(names[n], n, value.dtype)
        ]
        if not fitting:
            return
        node = fitting[0]
        yield node


def reuse_memory(graph: fx.Graph) -> None:
    """Lets operations write their results over what is read here for the last time."""
    for node in graph.nodes:
        if not is_pointwise(node) or written_to(node) is not None:
            continue
        free = [read for read in node.all_input_nodes if _is_free(read, node)]
        if free and can_write(node, node, node.meta["val"].dtype):
            write_to(node, free[0])


def _is_free(read: fx.Node, node: fx.Node) -> bool:
    """Whether what a node reads is memory of its size that nothing else has a hold of."""
    made, value = read.meta.get("val"), node.meta["val"]
    if read.op != "call_function" or len(read.users) > 1 or _is_placed(read):
        return False
    is_operation = isinstance(read.target, torch._ops.OpOverload) and read.target not in VIEWS
    if not is_operation and read.target is not multiply:
        return False
    if may_share_memory(read) and written_to(read) is None:
        return False
    if not isinstance(made, Tensor) or made.dtype != value.dtype or not made.is_contiguous():
        return False
    return same_shape(made, value)


def _is_placed(node: fx.Node) -> bool:
    """Whether a node writes to memory that was made for it."""
    place = written_to(node)
    return place is not None and place.op in ("placeholder", "call_method")


def is_pointwise(node: fx.Node) -> bool:
    """Whether an operation computes element by element."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


#: Operations that round alike for a whole vector of numbers and for a single one. sigmoid does not,
#: and the columns of a slice leave other single ones at their ends.
_ARITHMETIC = tuple(
    getattr(aten, name)
    for name in (
        *("add", "sub", "rsub", "mul", "div", "neg", "addcmul", "where", "relu", "abs"),
        *("clamp_min", "clamp_max", "clamp", "maximum", "minimum", "masked_fill"),
        *("threshold_backward", "sigmoid_backward", "tanh_backward"),
    )
)


def is_arithmetic(node: fx.Node) -> bool:
    """Whether an operation gives the same bits however its elements lie."""
    return getattr(node.target, "overloadpacket", None) in _ARITHMETIC


def written_to(node: fx.Node) -> fx.Node | None:
    """Where an operation writes its result, if it is told."""
    return cast(fx.Node | None, node.kwargs.get(_out_name(node.target)))


def write_to(node: fx.Node, place: fx.Node) -> None:
    """Lets an operation write its result to a place, see `can_write`."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        node.target = _writer(target) or target
    node.kwargs = {**node.kwargs, _out_name(node.target): place}


#: Matrix products, whose bits may depend on where the result lies.
_PRODUCTS = tuple(
    getattr(aten, name)
    for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "addr", "dot", "vdot")
)


def _can_lie(node: fx.Node, original: fx.Node, dtype: torch.dtype, faster: bool) -> bool:
    """Whether an operation can write to any address, see `can_write`, with the same bits."""
    is_product = getattr(original.target, "overloadpacket", None) in _PRODUCTS
    is_ours = faster and has_own_kernel(original)
    return can_write(node, original, dtype) and (is_ours or not is_product)


def can_write(node: fx.Node, original: fx.Node, dtype: torch.dtype) -> bool:
    """Whether an operation can write its result, of this dtype, into a tensor that is there.

    Args:
        node: of a function.
        original: the same of the whole graph, which knows what it is.
        dtype: of the tensor.
    """
    target = original.target
    if target is multiply:
        return bool(original.meta["val"].dtype == dtype)
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    return _writer(target) is not None and original.meta["val"].dtype == dtype


def _out_name(target: object) -> str:
    """The name of the argument for a place: "out" mostly, "grad_input" in derivatives."""
    arguments = target._schema.arguments if isinstance(target, torch._ops.OpOverload) else ()
    return next((argument.name for argument in arguments if argument.is_out), "out")


def _writer(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload with the same arguments and a place; none that computes and then copies."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments if not a.is_out]
    for name in target.overloadpacket.overloads():
        found = getattr(target.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments if not a.is_out]
        is_writer = torch.Tag.out in found.tags and torch.Tag.generated not in found.tags
        if is_writer and arguments == wanted:
            return cast(torch._ops.OpOverload, found)
    return None
