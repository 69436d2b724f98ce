"""What the convolutions share: where rounds begin, and what follows a convolution."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.errors import ShapeError
from graphfold.layers.activation import get_activation
from graphfold.layers.dropout import StateDropout
from graphfold.layers.node_input import features, parts


class Convolution(Cell):
    """What the convolutions share: how rounds begin, and dropout of the new state.

    Before the first round `h` is the features and every other field zero, unless an earlier pass
    computed them.

    Args:
        fields: what a node stores, with `h` among it.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, fields: Mapping[str, int], dropout: float) -> None:
        super().__init__()
        self.fields = fields
        self.dropout = StateDropout(dropout)

    def before(self, x: NodeInput) -> NodeInput:
        """The features, and the dropout mask."""
        x = features(x)
        return {"x": x, **self.dropout(x, self.fields["h"])}

    def initial(self, x: NodeInput) -> State:
        """The features as they are.

        Raises:
            ShapeError: if they are not as wide as `h`.
        """
        h, width = parts(x)["x"], self.fields["h"]
        if h.shape[1] != width:
            raise ShapeError(
                f"{type(self).__name__}(hidden_size={width}) starts from features that are "
                f"{h.shape[1]} wide. Give the encoder size={width}, or run a pass first that "
                "computes 'h'."
            )
        zeros = {name: h.new_zeros(h.shape[0], size) for name, size in self.fields.items()}
        return {**zeros, "h": h}

    def drop(self, h: Tensor, x: NodeInput) -> Tensor:
        """The new `h` of a group with some entries dropped, in training."""
        known = parts(x)
        return h * known["mask"] if "mask" in known else h


class AfterConvolution(nn.Module):
    """Batch normalisation if asked for, then an activation.

    Args:
        size: width of the rows.
        activation: "relu", "tanh", "sigmoid" or "none".
        batch_norm: whether to normalise over all nodes of a batch.

    Raises:
        ConfigError: if there is no such activation.
    """

    def __init__(self, size: int, activation: str, batch_norm: bool) -> None:
        super().__init__()
        self.activation = get_activation(activation)
        self.norm = nn.BatchNorm1d(size) if batch_norm else None

    def forward(self, h: Tensor) -> Tensor:
        """[num_rows, size], like `h`."""
        return self.activation(h if self.norm is None else normalise(self.norm, h))


def normalise(norm: nn.BatchNorm1d, h: Tensor) -> Tensor:
    """`norm(h)`; a single row, which has no variance, is normalised by the running statistics."""
    if norm.training and h.shape[0] < 2:
        return functional.batch_norm(
            h, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )
    normalised: Tensor = norm(h)
    return normalised
