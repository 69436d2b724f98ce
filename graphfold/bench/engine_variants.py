"""The variants of a benchmark that are graphfold itself."""

from __future__ import annotations

import torch

from graphfold.batching import Network
from graphfold.batching.native.library import why_missing

#: graphfold with the cells' own code, over the same plan.
UNTRACED = "untraced"

#: graphfold as it is, over a plan that computes equal nodes again and again.
EVERY_NODE = "every_node"


def fusions(network: Network) -> dict[str, bool | None]:
    """Variant -> its `fuse`: cells compiled, or else an error; and none compiled.

    Where none can be, or the network wants none, there is one variant, the network as it is.
    """
    if network.fuse is False or not can_compile_cells(network):
        return {"graphfold": network.fuse}
    return {"graphfold": True, UNTRACED: False}


def can_compile_cells(network: Network) -> bool:
    """Whether there is native code for a network's device and dtype."""
    like = next(iter(network.parameters()), torch.empty(0))
    return like.device.type == "cpu" and why_missing(like.dtype) is None
