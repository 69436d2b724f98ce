"""GGNNCell: gated graph neural network with a weight for each kind of edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.molecules.recurrent import RecurrentConvolution


class GGNNCell(RecurrentConvolution):
    """One round of a gated graph neural network, for `Rounds` of one weight for all.

    Equations 2-6 of Li et al. (2016), https://arxiv.org/abs/1511.05493, with a weight W_k for each
    kind k of edges, such as the orders of bonds:

        m_v = Σ_{u ∈ N(v)} W_{kind(u, v)} h_u + b
        h_v' = GRU(m_v, h_v)

    The neighbours of each kind are added up first, so that there is one product for a node. With
    one kind it equals PyTorch Geometric's `GatedGraphConv`. Differences from the paper: both
    directions of an edge have one weight; the bias is one for all kinds; dropout and jumping as
    options.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        kind: the column of codes that tells the kinds of edges, a missing code among them; None for
            the first one that holds codes.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and `jump` like it if asked for

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if there is no such column of codes, `dropout` is not a probability, or there
            is no such way of jumping.
    """

    def __init__(
        self,
        hidden_size: int,
        edge_columns: Sequence[Column],
        kind: str | None = None,
        dropout: float = 0.0,
        jumping: str | None = None,
    ) -> None:
        super().__init__(hidden_size, dropout, jumping)
        column = _choose(edge_columns, kind)
        self.kind, self.num_kinds = column.name, (column.size or 0) + 1
        self.message = nn.Linear(self.num_kinds * hidden_size, hidden_size)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Ones and zeros: which kind a bond is; the last one is for missing codes."""
        code = edge[self.kind].long()
        code = torch.where(code < 0, self.num_kinds - 1, code)
        kinds = torch.arange(self.num_kinds, device=code.device)
        return {"kind": (code.unsqueeze(1) == kinds).to(self.message.weight.dtype)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        by_kind = children.edge["kind"].unsqueeze(2) * children.rows("h").unsqueeze(1)
        return self.update(self.message(children.sum(by_kind.flatten(1))), x, children)


def _choose(columns: Sequence[Column], kind: str | None) -> Column:
    """The column of codes of this name, or the first one."""
    codes = {column.name: column for column in columns if column.size is not None}
    if kind is None and codes:
        return next(iter(codes.values()))
    if kind is None or kind not in codes:
        asked = "" if kind is None else f" '{kind}'.{did_you_mean(kind, codes)}"
        raise ConfigError(
            f"GGNNCell needs a column of codes that tells the kinds of edges{asked or '.'} The "
            f"columns of codes are: {', '.join(codes) or 'none'}."
        )
    return codes[kind]
