"""Bases of the convolutions: where rounds begin, what follows a convolution, a gated state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.errors import ConfigError, ShapeError
from graphfold.layers.activation import Activation, get_activation
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.column_encoder import features, parts
from graphfold.layers.feature_cell import drop_known
from graphfold.layers.normalisation import normalise

#: The field of the states of all rounds in one, and how they become one.
JUMP = "jump"
JUMPS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
}

NORMS: Mapping[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class Convolution(Cell):
    """The base of the convolutions: the first state, and what follows the new one of a round.

    Before the first round the first field and `jump` are the features and every other field is
    zero, unless an earlier pass computed them. The neighbours are asked for the first field.

    With `jumping` a node has the field `jump`, its states of all rounds in one, for the readout:
    the jumping knowledge of Xu et al. (2018), https://arxiv.org/abs/1806.03536, by their sum or by
    their elementwise maximum, the state before the first round among them.

    Args:
        fields: what a node stores; dropout is for the first of them.
        dropout: probability of dropping an entry of the new state, drawn anew in every round.
        residual: whether the old state is added to the new one.
        jumping: "sum" or "max" of the states of all rounds; None for no such field.

    Raises:
        ConfigError: if `dropout` is not a probability, or there is no such way of jumping.
    """

    def __init__(
        self,
        fields: Mapping[str, int],
        dropout: float,
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__()
        self.width = next(iter(fields.values()))
        if jumping not in (None, *JUMPS):
            known = " or ".join(JUMPS)
            raise ConfigError(f"there is no jumping '{jumping}'. Use {known}, or null.")
        self.fields = {**fields, JUMP: self.width} if jumping else fields
        if self.reads is None:
            self.reads = (next(iter(fields)),)
        self.dropout = StateDropout(dropout)
        self.residual, self.jumping = residual, jumping

    def before(self, x: NodeInput) -> NodeInput:
        """The features, and the dropout mask."""
        x = features(x)
        return {"x": x, **self.dropout(x, self.width)}

    def initial(self, x: NodeInput) -> State:
        """The features as they are.

        Raises:
            ShapeError: if they are not as wide as the state.
        """
        first, *others = self.fields
        h = self.first(x)
        zeros = {
            name: h.new_zeros(h.shape[0], self.fields[name]) for name in others if name != JUMP
        }
        return {first: h, **zeros, **({JUMP: h} if self.jumping else {})}

    def first(self, x: NodeInput) -> Tensor:
        """The features; raises ShapeError if they are not as wide as the state."""
        h = parts(x)["x"]
        if h.shape[1] != self.width:
            raise ShapeError(
                f"{type(self).__name__}(hidden_size={self.width}) starts from features that are "
                f"{h.shape[1]} wide. Give the encoder size={self.width}, or run a pass first that "
                f"computes '{next(iter(self.fields))}'."
            )
        return h

    def finish(self, h: Tensor, x: NodeInput, children: Children) -> dict[str, Tensor]:
        """The fields of the base, from the new state: dropped out, with the old one, and `jump`."""
        field = next(iter(self.fields))
        h = self.drop(h, x)
        if self.residual:
            h = children.previous(field) + h
        if self.jumping is None:
            return {field: h}
        return {field: h, JUMP: JUMPS[self.jumping](children.previous(JUMP), h)}

    def drop(self, h: Tensor, x: NodeInput) -> Tensor:
        """The new state of a group with some entries dropped, in training."""
        return drop_known(h, parts(x))


_IN_PLACE: Mapping[Activation, Activation] = {
    torch.relu: torch.relu_,
    torch.sigmoid: torch.sigmoid_,
    torch.tanh: torch.tanh_,
}


def get_activation_(name: str) -> Activation:
    """The activation called `name`, in the memory of what it is given.

    For what nothing else reads, such as the product of a linear layer: of a large batch, another
    tensor of states costs more in page faults than the arithmetic.

    Raises:
        ConfigError: with the nearest name if there is none.
    """
    activation = get_activation(name)
    return _IN_PLACE.get(activation, activation)


def has_bias(norm: str | None) -> bool:
    """True unless batch normalisation follows, which takes every bias away with the mean.

    The gradient of such a bias is rounding noise. Adam makes whole steps of it, so that runs with
    other numbers of threads or processes would part.
    """
    return norm != "batch"


class AfterConvolution(nn.Module):
    """Normalisation if asked for, then an activation, in the memory of what it is given.

    Args:
        size: width of the rows.
        activation: "relu", "tanh", "sigmoid" or "none".
        norm: "layer" normalises every row for itself, "batch" every entry over all nodes of a
            batch, which makes a prediction in training depend on the rest of the batch.

    Raises:
        ConfigError: if there is no such activation or norm.
    """

    def __init__(self, size: int, activation: str, norm: str | None) -> None:
        super().__init__()
        self.activation_ = get_activation_(activation)
        if norm not in (None, *NORMS):
            raise ConfigError(f"there is no norm '{norm}'. Use {' or '.join(NORMS)}, or null.")
        self.norm = None if norm is None else NORMS[norm](size)

    def forward(self, h: Tensor) -> Tensor:
        """[num_rows, size], like `h`."""
        if isinstance(self.norm, nn.BatchNorm1d):
            h = normalise(self.norm, h)
        elif self.norm is not None:
            h = self.norm(h)
        return self.activation_(h)


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
