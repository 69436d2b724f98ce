"""The variants of a benchmark that are graphfold itself."""

from __future__ import annotations

from graphfold.batching import Network

#: graphfold with torch's operations instead of kernels of the cells' own.
UNFUSED = "unfused"


def fusions(network: Network) -> dict[str, bool | None]:
    """Variant -> its `fuse`: that of the network, and False where that has kernels."""
    own = {"graphfold": network.fuse}
    return {**own, UNFUSED: False} if network.fuse else own
