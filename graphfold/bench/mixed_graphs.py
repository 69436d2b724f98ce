"""Generated graphs with several op types at mixed depths: where the choice of a policy matters.

Each function makes graphs without features from a seed; the same seed gives the same graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeAlias

from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG

#: (how many graphs, seed) -> graphs
Family: TypeAlias = Callable[[int, int], TypedDAG]

#: A type for each inner node of `mixed_trees`.
_LABELS = ("np", "vp", "pp", "s", "other")

#: Op type -> its arity, in `random_dags`.
_OPS = {"scale": 1, "gate": 1, "join": 2, "attend": 2, "compare": 2, "choose": 3}

TREES = Schema((NodeType("word", 0), *(NodeType(label, 2) for label in _LABELS)))
DAGS = Schema((NodeType("input", 0), *(NodeType(op, arity) for op, arity in _OPS.items())))
TEXT = Schema(
    (NodeType("letter", 1), NodeType("word", 1), NodeType("phrase", 2), NodeType("label", 1))
)
LATTICE = Schema((NodeType("letter", None), NodeType("word", 1), NodeType("label", 1)))


def mixed_trees(count: int, seed: int = 0) -> TypedDAG:
    """Trees of 5 to 40 words whose inner nodes have one of five types each."""
    rng, builder = random.Random(seed), GraphBuilder(TREES)
    for _ in range(count):
        words = list(builder.nodes("word", rng.randint(5, 40)))
        builder.output(_join(builder, rng, words, lambda: rng.choice(_LABELS)))
        builder.finish()
    return builder.build()


def random_dags(count: int, seed: int = 0) -> TypedDAG:
    """Operations of six types that read one to three earlier results, most often late ones."""
    rng, builder = random.Random(seed), GraphBuilder(DAGS)
    for _ in range(count):
        nodes = list(builder.nodes("input", rng.randint(2, 6)))
        for _ in range(rng.randint(10, 60)):
            op, arity = rng.choice(list(_OPS.items()))
            back = [min(int(rng.expovariate(0.25)), len(nodes) - 1) for _ in range(arity)]
            nodes.append(builder.node(op, [nodes[-1 - steps] for steps in back]))
        builder.output(nodes[-1])
        builder.finish()
    return builder.build()


def letters_to_sentences(count: int, seed: int = 0) -> TypedDAG:
    """Two levels: letters in chains make words, words in a tree a sentence; each node classified.

    The tagger and parser over words spelled out, as in Fold's examples. Words differ in length, so
    they are ready at different times.
    """
    rng, builder = random.Random(seed), GraphBuilder(TEXT)
    for _ in range(count):
        words = [_spell(builder, rng.randint(1, 12)) for _ in range(rng.randint(3, 25))]
        first = builder.num_nodes
        _join(builder, rng, list(words), lambda: "phrase")
        nodes = [*words, *range(first, builder.num_nodes)]
        builder.output(*builder.nodes("label", len(nodes), inputs=[[node] for node in nodes]))
        builder.finish()
    return builder.build()


def word_lattices(count: int, seed: int = 0) -> TypedDAG:
    """Chains of letters with words as short cuts; a letter reads the words that end before it.

    The lattice LSTM of Zhang and Yang (2018), https://arxiv.org/abs/1805.02023, a workload of
    ED-Batch; each letter is classified.
    """
    rng, builder = random.Random(seed), GraphBuilder(LATTICE)
    for _ in range(count):
        letters: list[int] = []
        ending: dict[int, list[int]] = {}
        length = rng.randint(8, 40)
        for position in range(length):
            before = letters[-1:] + ending.pop(position, [])
            letters.append(builder.node("letter", before))
            for end in range(position + 2, min(position + 5, length)):
                if rng.random() < 0.25:
                    ending.setdefault(end, []).append(builder.node("word", [letters[-1]]))
        builder.output(*builder.nodes("label", length, inputs=[[letter] for letter in letters]))
        builder.finish()
    return builder.build()


FAMILIES: Mapping[str, Family] = {
    "mixed_trees": mixed_trees,
    "random_dags": random_dags,
    "letters_to_sentences": letters_to_sentences,
    "word_lattices": word_lattices,
}


def _spell(builder: GraphBuilder, length: int) -> int:
    """A word over a chain of letters; the first letter has no letter before it."""
    before: int | None = None
    for _ in range(length):
        before = builder.node("letter", [before])
    return builder.node("word", [before])


def _join(
    builder: GraphBuilder, rng: random.Random, row: list[int], draw_type: Callable[[], str]
) -> int:
    """A tree over a row of nodes, neighbours joined in random order; its root."""
    while len(row) > 1:
        left = rng.randrange(len(row) - 1)
        row[left : left + 2] = [builder.node(draw_type(), row[left : left + 2])]
    return row[0]
