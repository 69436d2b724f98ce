"""Where torch spends its time, by kind of operation."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

PRODUCTS, GATHER, ELEMENTWISE, MEMORY = "products", "gather, scatter", "elementwise", "memory"

#: Kind -> how the names of its operations begin.
_BEGINNINGS = {
    PRODUCTS: ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "mkldnn"),
    GATHER: ("index", "_index", "gather", "scatter", "embedding", "_embedding", "segment", "cat"),
    MEMORY: ("empty", "zero", "fill_", "copy_", "clone", "resize", "new_"),
}

#: graphfold's kernels that are not elementwise -> their kind.
_OWN = {"product": PRODUCTS, "pack": MEMORY, "message_sum": GATHER}

#: Operations that look at a tensor anew, or only call others: what they take is dispatch.
_DISPATCH = {
    "alias", "as_strided", "chunk", "contiguous", "detach", "expand", "flatten", "item", "linear",
    "matmul", "narrow", "permute", "reshape", "select", "slice", "split", "split_with_sizes",
    "squeeze", "t", "to", "transpose", "unbind", "unsqueeze", "view", "_to_copy", "_unsafe_view",
}  # fmt: skip


def op_seconds(function: Callable[[], object], leave_out: str) -> dict[str, float]:
    """The time of the operations of a call, by kind.

    An operation counts with what it takes itself; what calls it is Python and dispatch, the rest of
    the wall clock.

    Args:
        function: what is profiled.
        leave_out: the name of a `record_function` block whose operations do not count.
    """
    # The profiler writes of itself to stderr unless asked not to, by a level above all of its own.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with profile(activities=[ProfilerActivity.CPU]) as found:
        function()
    seconds = dict.fromkeys((PRODUCTS, GATHER, ELEMENTWISE, MEMORY), 0.0)
    for event in found.events() or ():
        kind = kind_of(event.name)
        if kind is not None and not _is_inside(event, leave_out):
            seconds[kind] += event.self_cpu_time_total / 1e6
    return seconds


def kind_of(name: str) -> str | None:
    """The kind of an operation by its name, or None for what only calls others."""
    library, _, op = name.rpartition("::")
    if library == "torch_scatter":
        return GATHER
    if library == "graphfold":
        return _OWN.get(op, ELEMENTWISE)
    if library != "aten" or op in _DISPATCH:
        return None
    for kind, beginnings in _BEGINNINGS.items():
        if op.startswith(beginnings):
            return kind
    return ELEMENTWISE  # activations, sums, the loss


def _is_inside(event: Any, block: str) -> bool:
    while event is not None:
        if event.name == block:
            return True
        event = event.cpu_parent
    return False
