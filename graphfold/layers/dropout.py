"""Dropout of states inside cells."""

from __future__ import annotations

from torch import Tensor, nn

from graphfold.errors import ConfigError


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
        self.p = check_dropout(p)

    def forward(self, x: Tensor, width: int) -> dict[str, Tensor]:
        """{"mask": [num_rows of x, width]} in training, otherwise nothing."""
        if not self.training or self.p == 0:
            return {}
        keep = 1 - self.p
        return {"mask": x.new_empty(x.shape[0], width).bernoulli_(keep).div_(keep)}

    def extra_repr(self) -> str:
        return f"p={self.p}"


def check_dropout(p: float) -> float:
    """`p` as it is; raises ConfigError if it is not a probability below one."""
    if not 0 <= p < 1:
        raise ConfigError(f"dropout={p} is not a probability. Use a number from 0 to below 1.")
    return p
