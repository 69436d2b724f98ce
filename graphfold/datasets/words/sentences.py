"""Sentences: the words of each tree, in order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphfold.dag import TypedDAG

Ints = npt.NDArray[np.int64]


def sentences(dag: TypedDAG, type_name: str) -> list[Ints]:
    """The words of each sentence, as positions among the nodes of their type.

    A sentence is a tree: what is below a node that no other reads. So a pair of sentences in one
    graph is two, and no word reads those of another sentence.

    Args:
        dag: graphs of trees.
        type_name: the type of the words.
    """
    words = dag.nodes_of_type(type_name).numpy()
    if not len(words):
        return []
    root = _roots(dag)[words]
    order = np.argsort(root, kind="stable")
    bounds = np.flatnonzero(np.diff(root[order])) + 1
    return np.split(order, bounds)


def _roots(dag: TypedDAG) -> Ints:
    """[num_nodes] the root of the tree that each node is in; the way up doubles in each round."""
    above: Ints = np.arange(dag.num_nodes)
    reader = np.repeat(above, dag.input_ptr.diff().numpy())
    child = dag.input_index.numpy()
    above = above.copy()
    above[child[child >= 0]] = reader[child >= 0]
    while not np.array_equal(further := above[above], above):
        above = further
    return above
