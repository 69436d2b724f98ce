"""The variants of a benchmark that are graphfold itself."""

from __future__ import annotations

from graphfold.batching import Network

#: graphfold with the cells' own code, over the same plan.
UNTRACED = "untraced"

#: graphfold as it is, over a plan that computes equal nodes again and again.
EVERY_NODE = "every_node"


def fusions(network: Network) -> dict[str, bool | None]:
    """Variant -> its `fuse`: compiled cells, or else an error; and none."""
    return {"graphfold": True, UNTRACED: False} if network.fuse is not False else {}
