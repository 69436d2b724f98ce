"""AlignmentCell: a word, compared with the words of another sentence."""

from __future__ import annotations

import math

import torch
from torch import nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.errors import ConfigError
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.column_encoder import features, parts
from graphfold.layers.feature_cell import apply_mask


class AlignmentCell(Cell):
    """Aligns a word softly with the words of another sentence and compares them.

    For `Rounds(relation, 1)`, where the relation joins each word with all words of the other
    sentence; after Parikh et al. (2016), https://arxiv.org/abs/1606.01933, sections 3.1 and 3.2,
    with the node features x before the round:

        s_k = cos(F x, F x_k)    a = Σ_k softmax_k(s_k / τ) x_k
        h = ReLU(W [x, |x - a|, x ⊙ a, max_k s_k] + b)

    Differences from the paper: the score is a cosine with a learned temperature τ, so that equal
    words find each other before anything is learned; comparison reads difference, product and the
    best score. If the other sentence has no words, a and the best score are zero.

    Args:
        input_size: width of the node features.
        hidden_size: width of `h`, the field of a node; must be that of the features.
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: `h` of the words of the other sentence, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `input_size` is not `hidden_size`, or `dropout` is not a probability.
    """

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        if input_size != hidden_size:
            raise ConfigError(
                f"AlignmentCell compares features of width {input_size}, but has hidden_size="
                f"{hidden_size}. Set both to the same."
            )
        self.fields = {"h": hidden_size, "key": hidden_size}
        self.to_key = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.to_key.weight)
        self.sharpness = nn.Parameter(torch.tensor([math.log(10.0)]))  # log 1 / τ
        self.compare = nn.Linear(3 * hidden_size + 1, hidden_size)
        self.dropout = StateDropout(dropout)

    def before(self, x: NodeInput) -> NodeInput:
        """The features, their keys of length one, and the dropout mask."""
        x = features(x)
        key = nn.functional.normalize(self.to_key(x), dim=1)
        return {"x": x, "key": key, **self.dropout(x, self.fields["h"])}

    def initial(self, x: NodeInput) -> State:
        """The features and their keys."""
        start = parts(x)
        return {"h": start["x"], "key": start["key"]}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The comparison of the words."""
        rows, own, key = children.rows("h"), parts(x)["x"], parts(x)["key"]
        score = (children.rows("key") * children.expand(key)).sum(1, keepdim=True)
        aligned = children.attend(rows, score * self.sharpness.exp())
        pair = [own, (own - aligned).abs(), own * aligned, children.max(score)]
        h = torch.relu(self.compare(torch.cat(pair, 1)))
        return {"h": apply_mask(h, x), "key": key}
