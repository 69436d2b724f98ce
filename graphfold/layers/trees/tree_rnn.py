"""Tree-RNN cells: one connected layer, a gated unit, a tensor (RNTN), a matrix (MV-RNN)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.activation import get_activation
from graphfold.layers.encoders.column_encoder import features, parts
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask
from graphfold.layers.trees.leaves_and_bags import require_features


class TreeRNNCell(FeatureCell):
    """Recursive neural network over `arity` ordered children.

    Socher et al. (2011), "Parsing Natural Scenes and Natural Language with Recursive Neural
    Networks", equation 2:

        h = tanh(W [h_1; ...; h_arity] + b)

    Differences from the paper: any fixed arity; nodes may have features, which add V x inside tanh;
    `h` may be dropped out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node.
        arity: the number of children; an absent one reads zeros.
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: `h`, [group_size, arity, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self, input_size: int, hidden_size: int, arity: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__({"h": hidden_size}, input_size, hidden_size, dropout)
        self.arity = arity
        self.from_h = nn.Linear(arity * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        total = self.from_h(children.stack("h").flatten(1))
        return {"h": apply_mask(torch.tanh(add_part(total, x)), x)}


class TreeFCCell(Cell):
    """The cell of Fold's Tree-FC benchmark: one fully connected layer over the children.

    Looks et al. (2017), https://arxiv.org/abs/1702.02181, measure dynamic batching with it; Xu et
    al. (2018) repeat the measurement for Cavs. Features of inner nodes are not read.

        h = activation(W [h_1; ...; h_arity] + b)

    Args:
        hidden_size: width of `h`, the field of a node.
        arity: the number of children; an absent one reads zeros.
        activation: "relu", "tanh", "sigmoid" or "none".

    Shape:
        children: `h`, [group_size, arity, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if there is no such activation.
    """

    def __init__(self, hidden_size: int, arity: int = 2, activation: str = "relu") -> None:
        super().__init__()
        self.fields = {"h": hidden_size}
        self.arity = arity
        self.activation = get_activation(activation)
        self.from_h = nn.Linear(arity * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        return {"h": self.activation(self.from_h(children.stack("h").flatten(1)))}


class TreeGRUCell(FeatureCell):
    """Tree-GRU over any number of unordered children, with a reset gate for each.

    The unit of Cho et al. (2014), https://arxiv.org/abs/1406.1078, equations 5-8, with sums over
    children in the place of the previous state, as Tai et al. (2015) do for the LSTM; such units
    encode sentences in Zhou et al. (2016), https://aclanthology.org/C16-1274:

        h̃ = Σ_k h_k                           r_k = σ(W_r x + U_r h_k + b_r)
        z = σ(W_z x + U_z h̃ + b_z)            u = tanh(W_u x + U_u Σ_k r_k ⊙ h_k + b_u)
        h = z ⊙ h̃ + (1 - z) ⊙ u

    Differences from the papers: nodes may be without features; `u` may be dropped out (Semeniuta et
    al. 2016, https://arxiv.org/abs/1603.05118).

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, input_size, 3 * hidden_size, dropout)
        self.reset = nn.Linear(hidden_size, hidden_size)
        self.update = nn.Linear(hidden_size, hidden_size)
        self.candidate = nn.Linear(hidden_size, hidden_size)

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """The parts of the two gates and of the candidate."""
        names = ("reset", "update", "candidate")
        return dict(zip(names, product.chunk(3, dim=1), strict=True))

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        h = children.rows("h")
        total = children.sum(h)
        reset = add_part(self.reset(h), x, "reset", children)
        update = add_part(self.update(total), x, "update")
        candidate = self.candidate(children.sum(torch.sigmoid(reset) * h))
        u = apply_mask(torch.tanh(add_part(candidate, x, "candidate")), x)
        z = torch.sigmoid(update)
        return {"h": z * total + (1 - z) * u}


class RNTNCell(FeatureCell):
    """Recursive neural tensor network over `arity` ordered children.

    Socher et al. (2013), https://aclanthology.org/D13-1170, section 4.3, with z = [h_1; ...;
    h_arity] and a slice V_j of the tensor for each entry j of `h`:

        h_j = tanh(zᵀ V_j z + (W z + b)_j)

    All V_j z are one product with a matrix, whose rows are then multiplied by z and summed: a node
    needs `arity * hidden_size²` numbers of memory. The outer product z zᵀ, which needs
    `arity²` times as many as a slice, is never held.

    Differences from the paper: any fixed arity; nodes may have features, which add V x inside tanh;
    `h` may be dropped out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node; 25 to 35 in the paper.
        arity: the number of children; an absent one reads zeros.
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: `h`, [group_size, arity, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self, input_size: int, hidden_size: int, arity: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__({"h": hidden_size}, input_size, hidden_size, dropout)
        self.arity = arity
        width = arity * hidden_size
        self.from_h = nn.Linear(width, hidden_size)
        self.tensor = nn.Linear(width, hidden_size * width, bias=False)  # V_1; V_2; ...
        # A quadratic form adds up width² terms: small at first, or every tanh saturates.
        nn.init.uniform_(self.tensor.weight, -0.5 / width, 0.5 / width)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        z = children.stack("h").flatten(1)
        products = self.tensor(z).view(-1, self.fields["h"], z.shape[1])
        total = self.from_h(z) + (products * z.unsqueeze(1)).sum(2)
        return {"h": apply_mask(torch.tanh(add_part(total, x)), x)}


class MVLeafCell(Cell):
    """A word of an MV-RNN: a vector, and a matrix of low rank beside its diagonal.

    Socher et al. (2012), https://aclanthology.org/D12-1110, section 2.4 (low-rank matrices):

        h = a    M = U V + diag(s)

    Difference from the paper: a, U, V and s are linear maps of the word's features; in the paper
    each word has its own. s is one at first, so M is near the identity, as in the paper.

    Args:
        input_size: width of the node features.
        hidden_size: width of `h`; the field `m` holds the matrix, row after row.
        rank: the columns of U; 3 in the paper.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size], "m": [group_size, hidden_size²]}

    Raises:
        ConfigError: if there are no features.
    """

    arity = 0
    eye: Tensor

    def __init__(self, input_size: int, hidden_size: int, rank: int = 3) -> None:
        super().__init__()
        require_features(self, input_size)
        self.fields = {"h": hidden_size, "m": hidden_size * hidden_size}
        self.rank = rank
        self.from_x = nn.Linear(input_size, (2 + 2 * rank) * hidden_size)  # s, a, U, V
        self.register_buffer("eye", torch.eye(hidden_size), persistent=False)
        with torch.no_grad():
            self.from_x.bias[:hidden_size] = 1.0

    def before(self, x: NodeInput) -> NodeInput:
        """The vectors and the matrices; a leaf needs no children."""
        size, low = self.fields["h"], self.rank * self.fields["h"]
        s, a, u, v = torch.split(self.from_x(features(x)), [size, size, low, low], dim=1)
        product = torch.bmm(u.view(-1, size, self.rank), v.view(-1, self.rank, size))
        return {"h": a, "m": (product + s.unsqueeze(2) * self.eye).flatten(1)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the leaves."""
        return {"h": parts(x)["h"], "m": parts(x)["m"]}


class MVRNNCell(FeatureCell):
    """Matrix-vector recursive network: each child's matrix acts on the other child's vector.

    Socher et al. (2012), https://aclanthology.org/D12-1110, equations 2 and 3, for children (a, A)
    and (b, B):

        h = tanh(W [B a; A b] + b_W)    M = W_M [A; B]

    Difference from the paper: `h` may be dropped out. The matrices of phrases are full, as there.

    Args:
        hidden_size: width of `h`; the field `m` holds the matrix, row after row.
        dropout: probability of dropping an entry of `h`.

    Shape:
        children: `h` and `m`, [group_size, 2, hidden_size] and [group_size, 2, hidden_size²]
        returns: {"h": [group_size, hidden_size], "m": [group_size, hidden_size²]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    arity = 2

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        fields = {"h": hidden_size, "m": hidden_size * hidden_size}
        super().__init__(fields, dropout=dropout)
        self.from_h = nn.Linear(2 * hidden_size, hidden_size)
        self.from_m = nn.Linear(2 * hidden_size, hidden_size, bias=False)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        size = self.fields["h"]
        h, m = children.stack("h"), children.stack("m").view(-1, 2, size, size)
        ba = (m[:, 1] * h[:, 0].unsqueeze(1)).sum(2)
        ab = (m[:, 0] * h[:, 1].unsqueeze(1)).sum(2)
        p = torch.tanh(self.from_h(torch.cat([ba, ab], 1)))
        # Column by column, each a product of all nodes with the one matrix W_M.
        columns = [self.from_m(column) for column in m.flatten(1, 2).unbind(2)]
        matrix = torch.stack(columns, 2).flatten(1)
        return {"h": apply_mask(p, x), "m": matrix}
