"""What the convolutions share: where rounds begin, and what follows a convolution."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import Cell, NodeInput
from graphfold.errors import ShapeError
from graphfold.layers.activation import get_activation
from graphfold.layers.node_input import parts


def initial_h(cell: Cell, x: NodeInput) -> Tensor:
    """The features as the state before the first round.

    Raises:
        ShapeError: if they are not as wide as the state.
    """
    given, width = parts(x)["x"], cell.fields["h"]
    if given.shape[1] != width:
        raise ShapeError(
            f"{type(cell).__name__}(hidden_size={width}) starts from features that are "
            f"{given.shape[1]} wide. Give the encoder size={width}, or run a pass first that "
            "computes 'h'."
        )
    return given


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
