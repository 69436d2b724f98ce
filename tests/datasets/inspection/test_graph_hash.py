"""Equal graphs have equal hashes, others do not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG, collate, split
from graphfold.datasets.inspection.graph_hash import hash_graphs

WORD = NodeType("word", 0, (Column("form", "string"), Column("weight")))
TREES = Schema((WORD, NodeType("phrase")), node_targets=(Column("label", "int64", size=5),))
ATOM = NodeType("atom", 0, (Column("element", "int64", size=9),))
MOLECULES = Schema((ATOM,), relations=(EdgeType("bond", (Column("order", "int64", size=4),)),))

Bond = tuple[int, int, int]


def phrases(*sentences: str, label: int = 0) -> TypedDAG:
    builder = GraphBuilder(TREES)
    for sentence in sentences:
        words = [builder.node("word", form=w, weight=len(w)) for w in sentence.split()]
        builder.output(builder.node("phrase", words, label=label))
        builder.finish()
    return builder.build()


def molecules(*graphs: tuple[Sequence[int], Sequence[Bond]]) -> TypedDAG:
    builder = GraphBuilder(MOLECULES)
    for elements, bonds in graphs:
        builder.nodes("atom", len(elements), element=elements)
        first, second = [a for a, _, _ in bonds], [b for _, b, _ in bonds]
        order = [order for _, _, order in bonds] * 2
        builder.edges("bond", first + second, second + first, order=order)
        builder.output(*range(len(elements)))
        builder.finish()
    return builder.build()


def chain(length: int) -> TypedDAG:
    builder = GraphBuilder(TREES)
    node = builder.node("word", form="a")
    for _ in range(length):
        node = builder.node("phrase", [node])
    builder.output(node)
    builder.finish()
    return builder.build()


def test_words_count_as_words_whatever_their_codes():
    first, second = phrases("a b", "c"), phrases("c", "b", "a b", label=3)
    a_b, c = hash_graphs(first).tolist()
    assert hash_graphs(second).tolist()[::2] == [c, a_b]


def test_order_words_and_shape_make_a_difference():
    hashes = hash_graphs(phrases("a b", "b a", "a", "a b a", "b")).tolist()
    nested = GraphBuilder(TREES)
    inner = nested.node("phrase", [nested.node("word", form="a", weight=1)])
    nested.output(nested.node("phrase", [inner, nested.node("word", form="b", weight=1)]))
    nested.finish()
    hashes += hash_graphs(nested.build()).tolist()
    assert len(set(hashes)) == len(hashes)


def test_a_hash_does_not_depend_on_the_neighbours_in_the_batch():
    dag = phrases("a b", "c d e", "a b")
    alone = [int(hash_graphs(one)) for one in split(dag)]
    assert hash_graphs(dag).tolist() == alone
    again = collate([dag, phrases("z a b"), dag])
    assert hash_graphs(again)[4:].tolist() == alone


def test_atoms_may_be_numbered_in_any_way():
    ethanol = ((6, 6, 8), [(0, 1, 1), (1, 2, 1)])
    again = ((8, 6, 6), [(1, 2, 1), (0, 1, 1)])
    ether = ((6, 8, 6), [(0, 1, 1), (1, 2, 1)])
    aldehyde = ((6, 6, 8), [(0, 1, 1), (1, 2, 2)])
    first, second, third, fourth = hash_graphs(molecules(ethanol, again, ether, aldehyde)).tolist()
    assert first == second
    assert len({first, third, fourth}) == 3


def test_a_deep_chain_and_no_graph():
    assert len(set(hash_graphs(collate([chain(9_999), chain(10_000)])).tolist())) == 2
    assert hash_graphs(GraphBuilder(TREES).build()).shape == (0,)
    assert hash_graphs(phrases("a")).dtype == torch.int64
