"""A word beside the words of another sentence: against attention written out, word by word."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from graphfold.batching import Batch, Network, Rounds, build_schedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema
from graphfold.layers import AlignmentCell

SCHEMA = Schema((NodeType("word"),), relations=(EdgeType("across"),))
PASSES = [Rounds("across", 1)]


@pytest.mark.parametrize("run", ["auto", "eager"])
def test_a_word_is_compared_with_those_of_the_other_sentence(run: str) -> None:
    torch.manual_seed(0)
    cell = AlignmentCell(4, 4)
    torch.nn.init.normal_(cell.to_key.weight)
    network = Network(SCHEMA, (PASSES[0], {"word": cell}), run=run).double()
    graph = GraphBuilder(SCHEMA)
    for first, second in ((2, 3), (1, 1), (1, 0)):
        words = list(graph.nodes("word", first + second))
        pairs = [(a, b) for a in words[:first] for b in words[first:]]
        pairs += [(b, a) for a, b in pairs]
        graph.edges("across", [a for a, _ in pairs], [b for _, b in pairs])
        graph.output(0)
        graph.finish()
    dag = graph.build()
    x = torch.randn(dag.num_nodes, 4, dtype=torch.float64)
    h = network(Batch(dag, build_schedule(dag, PASSES)), {"word": x})["h"]
    others = [[2, 3, 4], [2, 3, 4], [0, 1], [0, 1], [0, 1], [6], [5], []]
    for node, words in enumerate(others):
        aligned, best = x.new_zeros(4), x.new_zeros(1)
        if words:
            keys = cell.to_key(x[words])
            score = functional.cosine_similarity(cell.to_key(x[node]).unsqueeze(0), keys)
            aligned = torch.softmax(score * cell.sharpness.exp(), 0) @ x[words]
            best = score.max().view(1)
        own = x[node]
        compared = torch.cat([own, (own - aligned).abs(), own * aligned, best])
        torch.testing.assert_close(h[node], torch.relu(cell.compare(compared)))
