"""Bases of the convolutions: the first state, the steps after a convolution, gated states."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from graphfold.batching.cell import REAL, Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.errors import ConfigError, ShapeError
from graphfold.layers.activation import get_activation
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.column_encoder import features, parts
from graphfold.layers.feature_cell import apply_mask
from graphfold.layers.normalisation import is_batch_norm, normalise

#: The field that joins the states of all rounds, and the functions that join them.
JUMP = "jump"
JUMPS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": torch.add, "max": torch.maximum}

NORMS: Mapping[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class Convolution(Cell):
    """Base of the convolutions: the first state, and the steps after a round's new state.

    Before the first round the first field and `jump` are the features and every other field is
    zero, unless an earlier pass computed them. The first field of the neighbours is read.

    With `jumping` a node has the field `jump` for the readout, the sum or the elementwise maximum
    of its states in all rounds, the state before the first round included: the jumping knowledge of
    Xu et al. (2018), https://arxiv.org/abs/1806.03536.

    Args:
        fields: the fields of a node; dropout is for the first of them.
        dropout: probability of dropping an entry of the new state, with a new mask in every round.
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
            names = " or ".join(JUMPS)
            raise ConfigError(f"there is no jumping '{jumping}'. Use {names}, or null.")
        self.fields = {**fields, JUMP: self.width} if jumping else fields
        if self.reads is None:
            self.reads = (next(iter(fields)),)
        self.dropout = StateDropout(dropout)
        self.residual, self.jumping = residual, jumping

    @property
    def reads_real(self) -> bool:  # type: ignore[override]
        """True if it normalises over the nodes of a batch."""
        return any(map(is_batch_norm, self.modules()))

    def before(self, x: NodeInput) -> NodeInput:
        """The features, and the dropout mask."""
        x = features(x)
        return {"x": x, **self.dropout(x, self.width)}

    def initial(self, x: NodeInput) -> State:
        """The state before the first round.

        Raises:
            ShapeError: if the features are not as wide as the state.
        """
        h = self.first(x)
        starts = (next(iter(self.fields)), JUMP)
        return {
            name: h if name in starts else h.new_zeros(h.shape[0], width)
            for name, width in self.fields.items()
        }

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
        """The first field and `jump`: the new state with dropout and the residual connection."""
        field = next(iter(self.fields))
        h = self.drop(h, x)
        if self.residual:
            h = children.previous(field) + h
        if self.jumping is None:
            return {field: h}
        return {field: h, JUMP: JUMPS[self.jumping](children.previous(JUMP), h)}

    def drop(self, h: Tensor, x: NodeInput) -> Tensor:
        """The new state of a group with dropout."""
        return apply_mask(h, x)


def has_bias(norm: str | None) -> bool:
    """True unless batch normalisation follows, which subtracts every bias with the mean.

    The gradient of such a bias is rounding noise. Adam makes full steps of it, so runs with other
    numbers of threads or processes would diverge.
    """
    return norm != "batch"


class AfterConvolution(nn.Module):
    """Optional normalisation, then an activation in place.

    Args:
        size: width of the rows.
        activation: "relu", "tanh", "sigmoid" or "none".
        norm: "layer" normalises each row, "batch" each entry over all nodes of a batch, so that a
            prediction in training depends on the rest of the batch.

    Raises:
        ConfigError: if there is no such activation or norm.
    """

    def __init__(self, size: int, activation: str, norm: str | None) -> None:
        super().__init__()
        self.activation_ = get_activation(activation, in_place=True)
        if norm not in (None, *NORMS):
            raise ConfigError(f"there is no norm '{norm}'. Use {' or '.join(NORMS)}, or null.")
        self.norm = None if norm is None else NORMS[norm](size)

    def forward(self, h: Tensor, x: NodeInput) -> Tensor:
        """[num_rows, size], like `h`; x is the input of the cell, with `REAL` in padded batches."""
        if isinstance(self.norm, nn.BatchNorm1d):
            h = normalise(self.norm, h, parts(x).get(REAL))
        elif self.norm is not None:
            h = self.norm(h)
        return self.activation_(h)


class RecurrentConvolution(Convolution):
    """Base of convolutions with the new state GRU(message, old state), see `torch.nn.GRUCell`.

    The gates take the place of residual connections, normalisation and activation.

    Args:
        hidden_size: width of `h`, the field of a node, and of the message.
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
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
