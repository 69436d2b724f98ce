"""What a cell knows of its nodes before their children: one tensor, or several by name."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from graphfold.batching.cell import NodeInput
from graphfold.errors import ConfigError, ShapeError


def features(x: NodeInput) -> Tensor:
    """The features as they come from the encoder: one tensor.

    Raises:
        ShapeError: if they are several tensors by name.
    """
    if isinstance(x, Tensor):
        return x
    raise ShapeError(
        f"the features are a mapping of {', '.join(x) or 'nothing'}, but this cell reads one "
        "tensor. Concatenate them."
    )


def parts(x: NodeInput) -> Mapping[str, Tensor]:
    """What `before` returned by name; a single tensor has the name "x"."""
    return {"x": x} if isinstance(x, Tensor) else x


class StateDropout(nn.Module):
    """Dropout inside cells: masks for all nodes, drawn in node order before the first level.

    The draw does not depend on the schedule, so every policy and every engine drops the same
    entries. A kept entry is scaled by 1 / (1 - p).

    Args:
        p: the probability of dropping an entry.

    Raises:
        ConfigError: if `p` is not a probability below one.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ConfigError(f"dropout={p} is not a probability. Use a number from 0 to below 1.")
        self.p = p

    def forward(self, x: Tensor, width: int) -> dict[str, Tensor]:
        """{"mask": [num_rows of x, width]} in training, otherwise nothing."""
        if not self.training or self.p == 0:
            return {}
        keep = 1 - self.p
        return {"mask": x.new_empty(x.shape[0], width).bernoulli_(keep).div_(keep)}

    def extra_repr(self) -> str:
        return f"p={self.p}"
