"""DrawnGraph: the parts of one graph that a picture needs, as plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphfold.dag import TypedDAG
from graphfold.training.prediction.node_texts import node_words


@dataclass(frozen=True)
class DrawnGraph:
    """One graph.

    Args:
        inputs: the inputs of each node, in order.
        relations: of each input, its relation, or None.
        depth: of each node, the longest path from a node without inputs.
        texts: of each node, its word or another name that it has from the input; None for none.
        are_words: whether the texts are the words of a sentence.
        has_relations: whether inputs have relations, as in a dependency tree.
        outputs: the output nodes.
    """

    inputs: Sequence[Sequence[int]]
    relations: Sequence[Sequence[str | None]]
    depth: Sequence[int]
    texts: Sequence[str | None]
    are_words: bool
    has_relations: bool
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
    has_relations = ("inputs", "deprel") in dag.dictionaries
    relation = dag.strings("inputs", "deprel") if has_relations else [None] * len(index)
    words = node_words(dag)
    are_words = any(word is not None for word in words)
    inputs = [[index[k] for k in kept] for kept in slots]
    texts = words if are_words else _names(dag, inputs)
    relations = [[relation[k] for k in kept] for kept in slots]
    return DrawnGraph(
        inputs,
        relations,
        dag.depth.tolist(),
        texts,
        are_words,
        has_relations,
        dag.output_index.tolist(),
    )


def _names(dag: TypedDAG, inputs: Sequence[Sequence[int]]) -> list[str | None]:
    """The first string of each node; without any strings, its type as far as it is new."""
    names: list[str | None] = [None] * dag.num_nodes
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        strings = [c.name for c in node_type.features if (space, c.name) in dag.dictionaries]
        nodes = dag.nodes_of_type(node_type.name).tolist()
        if strings:
            for node, name in zip(nodes, dag.strings(space, strings[0]), strict=True):
                names[node] = name
    if any(names) or len(dag.schema.types) < 2:
        return names
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
