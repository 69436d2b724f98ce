"""DrawnGraph: the parts of one graph that a picture needs, as plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from graphfold.dag import TypedDAG


@dataclass(frozen=True)
class DrawnGraph:
    """One graph.

    Args:
        inputs: the inputs of each node, in order.
        relations: of each input, its relation, or None.
        depth: of each node, the longest path from a node without inputs.
        texts: of each node, its word or another name that it has from the input; None for none.
        is_word: of each node, whether its text is a word.
        is_dependency: whether all nodes are words, as in a dependency tree.
        outputs: the output nodes.
    """

    inputs: Sequence[Sequence[int]]
    relations: Sequence[Sequence[str | None]]
    depth: Sequence[int]
    texts: Sequence[str | None]
    is_word: Sequence[bool]
    is_dependency: bool
    outputs: Sequence[int]

    def parts(self) -> list[list[int]]:
        """The nodes of each connected part with an output, in order of their first nodes."""
        part_of = list(range(len(self.inputs)))
        for node, below in enumerate(self.inputs):
            for other in below:
                part_of[_root(part_of, other)] = _root(part_of, node)
        parts: dict[int, list[int]] = {}
        for node in range(len(part_of)):
            parts.setdefault(_root(part_of, node), []).append(node)
        with_output = {_root(part_of, node) for node in self.outputs}
        return [part for root, part in parts.items() if root in with_output]


def drawn_graph(dag: TypedDAG) -> DrawnGraph:
    """The parts of a `TypedDAG` of one graph."""
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    slots = [[k for k in range(begin, end) if index[k] >= 0] for begin, end in pairwise(ptr)]
    relation: list[str | None] = [None] * len(index)
    if ("inputs", "deprel") in dag.dictionaries:
        relation = dag.strings("inputs", "deprel")
    inputs = [[index[k] for k in kept] for kept in slots]
    has_form = [any(c.name == "form" for c in item.features) for item in dag.schema.types]
    return DrawnGraph(
        inputs,
        [[relation[k] for k in kept] for kept in slots],
        dag.depth.tolist(),
        _texts(dag, inputs),
        [has_form[code] for code in dag.op_type.tolist()],
        all(has_form),
        dag.output_index.tolist(),
    )


Value = TypeVar("Value")


def without_nodes(
    graph: DrawnGraph, by_node: Mapping[int, Value], left_out: Set[int]
) -> tuple[DrawnGraph, dict[int, Value]]:
    """A graph without some nodes, whose inputs go to the nodes that read them.

    Args:
        graph: the graph; none of its outputs is left out.
        by_node: node -> value, which is numbered anew as the nodes are.
        left_out: the nodes that are left out.
    """
    kept = [node for node in range(len(graph.inputs)) if node not in left_out]
    number = {node: new for new, node in enumerate(kept)}
    edges = [_edges_of(graph, node, left_out) for node in kept]
    return DrawnGraph(
        [[number[other] for other, _ in own] for own in edges],
        [[relation for _, relation in own] for own in edges],
        [graph.depth[node] for node in kept],
        [graph.texts[node] for node in kept],
        [graph.is_word[node] for node in kept],
        graph.is_dependency,
        [number[node] for node in graph.outputs],
    ), {number[node]: value for node, value in by_node.items() if node in number}


def _edges_of(graph: DrawnGraph, node: int, left_out: Set[int]) -> list[tuple[int, str | None]]:
    """The inputs of a node with their relations, in order; those of nodes that are left out."""
    edges: list[tuple[int, str | None]] = []
    stack = list(zip(graph.inputs[node], graph.relations[node], strict=True))[::-1]
    while stack:
        other, relation = stack.pop()
        if other in left_out:
            stack += list(zip(graph.inputs[other], graph.relations[other], strict=True))[::-1]
        else:
            edges.append((other, relation))
    return edges


def _texts(dag: TypedDAG, inputs: Sequence[Sequence[int]]) -> list[str | None]:
    """The first string of each node; where no type has strings, its type as far as it is new."""
    texts: list[str | None] = [None] * dag.num_nodes
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        strings = [c.name for c in node_type.features if (space, c.name) in dag.dictionaries]
        if strings:
            nodes = dag.nodes_of_type(node_type.name).tolist()
            for node, text in zip(nodes, dag.strings(space, strings[0]), strict=True):
                texts[node] = text
    if any(texts) or len(dag.schema.types) < 2:
        return texts
    types = [dag.schema.types[code].name for code in dag.op_type.tolist()]
    shown: list[str | None] = list(types)
    for node, below in enumerate(inputs):
        for other in below:  # $.owner under $ is .owner
            shown[other] = types[other].removeprefix(types[node]) or types[other]
    return shown


def _root(part_of: list[int], node: int) -> int:
    while part_of[node] != node:
        part_of[node] = part_of[part_of[node]]
        node = part_of[node]
    return node
