"""The base of convolutions whose state is kept by a gated recurrent unit."""

from __future__ import annotations

from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.molecules.message_passing import Convolution


class RecurrentConvolution(Convolution):
    """A convolution whose new state is GRU(message, old state), as of `torch.nn.GRUCell`.

    The gates take the place of residual connections, normalisation and activation.

    Args:
        hidden_size: width of `h`, the field of a node, and of the message.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Raises:
        ConfigError: if `dropout` is not a probability, or there is no such way of jumping.
    """

    def __init__(self, hidden_size: int, dropout: float, jumping: str | None) -> None:
        super().__init__({"h": hidden_size}, dropout, jumping=jumping)
        self.gru = nn.GRUCell(hidden_size, hidden_size)

    def update(self, message: Tensor, x: NodeInput, children: Children) -> State:
        """The fields of the nodes of a group after their messages."""
        h: Tensor = self.gru(message, children.previous("h"))
        return self.finish(h, x, children)
