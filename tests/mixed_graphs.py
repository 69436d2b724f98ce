"""Generated graphs of several types at mixed depths, where the choice of a policy matters."""

from __future__ import annotations

import random

from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG

TEXT = Schema(
    (NodeType("letter", 1), NodeType("word", 1), NodeType("phrase", 2), NodeType("label", 1))
)
LATTICE = Schema((NodeType("letter", None), NodeType("word", 1), NodeType("label", 1)))


def letters_to_sentences(count: int, seed: int = 0) -> TypedDAG:
    """Letters in chains make words, words in a tree a sentence; every word and phrase has a label.

    The tagger and parser over words spelled out, as in Fold's examples. Words differ in length, so
    they are complete at different depths.
    """
    rng, builder = random.Random(seed), GraphBuilder(TEXT)
    for _ in range(count):
        nodes = [_spell(builder, rng.randint(1, 12)) for _ in range(rng.randint(3, 25))]
        row = list(nodes)
        while len(row) > 1:  # neighbours join in random order
            left = rng.randrange(len(row) - 1)
            nodes.append(builder.node("phrase", row[left : left + 2]))
            row[left : left + 2] = nodes[-1:]
        builder.output(*builder.nodes("label", len(nodes), inputs=[[node] for node in nodes]))
        builder.finish()
    return builder.build()


def word_lattices(count: int, seed: int = 0) -> TypedDAG:
    """Chains of letters with words as short cuts; a letter reads the words that end before it.

    The lattice LSTM of Zhang and Yang (2018), https://arxiv.org/abs/1805.02023, a workload of
    ED-Batch; every letter has a label.
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


def _spell(builder: GraphBuilder, length: int) -> int:
    """A word over a chain of letters; the first letter has no letter before it."""
    before: int | None = None
    for _ in range(length):
        before = builder.node("letter", [before])
    return builder.node("word", [before])
