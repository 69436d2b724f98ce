"""A tree over the fragments of a molecule, or one over each of its parts."""

from __future__ import annotations

from collections.abc import Sequence

from graphfold.datasets.molecules.fragments.disjoint_sets import DisjointSets
from graphfold.datasets.molecules.fragments.fragment_cuts import Cut


def fragment_trees(cut: Cut) -> tuple[list[int], list[list[int]]]:
    """The roots, one for each connected part of a molecule, and the children of every fragment.

    Where links form a cycle, as between fused rings that a junction joins as well, a maximum
    spanning tree is kept (Kruskal): links between fragments that have more in common come first,
    then those between fragments of lower numbers. The root is the centre of its tree, of two
    centres the lower number; so trees are as flat as can be.

    Returns:
        roots: the numbers of the roots, ascending.
        children: [num_fragments] the numbers of each fragment's children, ascending.
    """
    near = _spanning(cut)
    roots = _centres(near)
    children: list[list[int]] = [[] for _ in near]
    stack = [(root, -1) for root in roots]
    while stack:
        number, parent = stack.pop()
        children[number] = [other for other in near[number] if other != parent]
        stack += [(child, number) for child in children[number]]
    return roots, children


def _spanning(cut: Cut) -> list[list[int]]:
    """The neighbours of each fragment in the spanning trees, ascending."""
    trees = DisjointSets(len(cut.fragments))
    near: list[list[int]] = [[] for _ in cut.fragments]
    for first, second in sorted(cut.links, key=lambda pair: (-cut.links[pair], pair)):
        if trees.join(first, second):
            near[first].append(second)
            near[second].append(first)
    return [sorted(own) for own in near]


def _centres(near: Sequence[Sequence[int]]) -> list[int]:
    """The centre of each tree: what is left when leaves are taken off, layer by layer."""
    degree = [len(own) for own in near]
    centres = [number for number, count in enumerate(degree) if count == 0]
    layer = [number for number, count in enumerate(degree) if count == 1]
    while layer:
        inner = []
        taken = set(layer)
        for number in layer:
            degree[number] = 0
            for other in near[number]:
                if other in taken:  # the last two of a tree
                    if number < other:
                        centres.append(number)
                elif degree[other]:
                    degree[other] -= 1
                    if degree[other] == 1:
                        inner.append(other)
                    elif degree[other] == 0:
                        centres.append(other)
        layer = [number for number in inner if degree[number]]
    return sorted(centres)
