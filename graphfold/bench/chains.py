"""Sentences as chains, and the LSTM of torch that a Tree-LSTM cell over chains equals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from graphfold.batching import Batch, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import NaryTreeLSTMCell

SCHEMA = Schema((NodeType("token", 1),))

#: The cell's blocks f, i, o, u in torch's order i, f, g, o; the way back is the same.
_ORDER = (1, 0, 3, 2)


class Chains:
    """A batch of sentences in both forms.

    Args:
        lengths: how many tokens each sentence has.
        width: of a token's vector.
    """

    def __init__(self, lengths: Sequence[int], width: int) -> None:
        dag = chain_graphs(lengths)
        self.batch = Batch(dag, build_schedule(dag, [Up()]))
        self.x = torch.randn(dag.num_nodes, width)
        # What the loss multiplies the states with, so that no two gradients are equal.
        self.direction = torch.randn(dag.num_nodes, width)
        self.packed = pack_sequence(list(torch.split(self.x, list(lengths))), enforce_sorted=False)
        numbers = list(torch.split(torch.arange(dag.num_nodes), list(lengths)))
        self.order = pack_sequence(numbers, enforce_sorted=False).data  # node of each packed row
        self.packed_direction = self.direction[self.order]


def chain_graphs(lengths: Sequence[int]) -> TypedDAG:
    """A chain of tokens for each length; the first token's child is absent."""
    builder = GraphBuilder(SCHEMA)
    for length in lengths:
        node = builder.node("token", [None])
        for _ in range(length - 1):
            node = builder.node("token", [node])
        builder.output(node)
        builder.finish()
    return builder.build()


def torch_lstm(cell: NaryTreeLSTMCell, width: int) -> nn.LSTM:
    """`torch.nn.LSTM` with the weights of a cell of arity 1; its second bias is zero."""
    lstm = nn.LSTM(width, cell.fields["h"])
    assert cell.from_x is not None
    weights = {
        "weight_ih_l0": regrouped(cell.from_x.weight),
        "weight_hh_l0": regrouped(cell.from_h.weight),
        "bias_ih_l0": regrouped(cell.from_h.bias),
        "bias_hh_l0": torch.zeros_like(cell.from_h.bias),
    }
    lstm.load_state_dict(weights)
    return lstm


def regrouped(weight: Tensor) -> Tensor:
    """The four blocks of rows of a weight from the cell's order to torch's, or back."""
    blocks = weight.chunk(4)
    return torch.cat([blocks[index] for index in _ORDER])
