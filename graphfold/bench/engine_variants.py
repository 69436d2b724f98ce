"""The variants of a benchmark that are graphfold itself."""

from __future__ import annotations

from graphfold.batching import Network
from graphfold.batching.engine.programs.fusion.c_compiler import find_compiler

#: graphfold with kernels of the cells' own.
FUSED = "fused"


def fusions(network: Network) -> dict[str, bool | None]:
    """Variant -> its `fuse`: that of the network, and True where there is a compiler."""
    own = {"graphfold": network.fuse}
    return own if find_compiler() is None else {**own, FUSED: True}
