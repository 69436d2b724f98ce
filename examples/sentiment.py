"""Sentiment of sentences and of every phrase in them: a Tree-LSTM on the Stanford treebank.

Tai et al. (2015), https://arxiv.org/abs/1503.00075, section 5.3, without pre-trained vectors:

    python examples/sentiment.py sst/train.txt sst/test.txt [EPOCHS]
"""

import sys
from pathlib import Path

import torch
from torch import nn

from graphfold import blocks as td
from graphfold.datasets.readers.bracket_tree import BracketText, read_tree


class TreeLSTM(nn.Module):
    """Equations 9 to 14: from the vector of a word, or (h, c) of each child, to (h, c)."""

    def __init__(self, size, arity):
        super().__init__()
        self.gates = nn.Linear(max(arity, 1) * size, (3 + arity) * size)

    def forward(self, *x):
        cells = [] if isinstance(x[0], torch.Tensor) else [c for _, c in x]
        gates = self.gates(torch.cat([h for h, _ in x] if cells else x, 1))
        i, o, u, *f = gates.chunk(3 + len(cells), 1)
        c = sum(f.sigmoid() * c for f, c in zip(f, cells, strict=True))
        c = c + i.sigmoid() * nn.functional.dropout(u.tanh(), 0.5, self.training)
        return o.sigmoid() * c.tanh(), c


def sentiment(num_words, size=150):
    """The scores of every node of a tree, (label, word) or (label, tree, tree), as metrics.

    `nodes` are all of them, `roots` those of the whole trees. Words begin as zeros, and those that
    training does not meet stay so.
    """
    word = td.GetItem(1) >> td.Scalar("int64") >> td.Embedding(num_words, size, nn.init.zeros_)
    leaf, branch, scores = TreeLSTM(size, 0), TreeLSTM(size, 2), td.Function(nn.Linear(size, 5))

    def node(tree, x):
        state = td.OneOf(len, {2: word >> leaf, 3: td.Record([(1, tree), (2, tree)]) >> branch})(x)
        td.Metric("nodes")(scores(state[0]), td.GetItem(0)(x))
        return state

    tree = td.recursive(lambda t: td.compose(lambda x: node(t, x)), output_type=([size], [size]))
    return td.compose(lambda x: td.Metric("roots")(scores(tree(x)[0]), td.GetItem(0)(x)))


def read(path, codes):
    """The trees of a file in brackets, one on a line; words are numbered by `codes`."""
    for number, line in enumerate(path.read_text(encoding="utf-8").lower().splitlines(), start=1):
        nodes = []
        for label, word, children, _ in read_tree(BracketText(line, number, 1), False).nodes():
            below = [nodes[child] for child in children]
            nodes.append((int(label), *(below or [codes.setdefault(word, len(codes))])))
        yield nodes[-1]


def train(model, loader, optimizer):
    """One epoch. The loss is the sum over the nodes of a tree, and the mean over trees."""
    for batch in loader:
        result = model.train().result(batch)
        scores, labels = result.metrics["nodes"], torch.tensor(result.labels["nodes"])
        loss = nn.functional.cross_entropy(scores, labels, reduction="sum") / batch.num_graphs
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model, loader, metric):
    """The share of the roots, or of all nodes, whose label has the highest score."""
    results = [model.eval().result(batch) for batch in loader]
    right = [r.metrics[metric].argmax(1) == torch.tensor(r.labels[metric]) for r in results]
    return torch.cat(right).double().mean().item()


def main(train_file, test_file, epochs=4):
    torch.manual_seed(0)
    codes = {}
    trees = [list(read(Path(name), codes)) for name in (train_file, test_file)]
    model = td.compile(sentiment(len(codes)))
    known, new = (td.BlockDataset(model, part) for part in trees)
    loader, optimizer = known.loader(25, True), torch.optim.Adagrad(model.parameters(), 0.05)
    for epoch in range(int(epochs)):
        train(model, loader, optimizer)
        roots, nodes = (accuracy(model, new.loader(100), part) for part in ("roots", "nodes"))
        print(f"epoch {epoch + 1}: accuracy of roots {roots:.3f}, of nodes {nodes:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
