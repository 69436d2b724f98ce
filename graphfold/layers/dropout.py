"""Dropout of vectors, and of states inside cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.errors import ConfigError


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with masks that take a tenth of the time on a CPU.

    Args:
        p: the probability of dropping an entry; the others are scaled by 1 / (1 - p).

    Raises:
        ConfigError: if `p` is not a probability below one.
    """

    def __init__(self, p: float) -> None:
        super().__init__(check_dropout(p))

    def forward(self, x: Tensor) -> Tensor:
        """[...] like `x`."""
        if not x.is_cpu:  # torch draws and multiplies at once there
            return super().forward(x)
        return x * _mask(x, x.shape, 1 - self.p) if self.training and self.p else x


def drop(x: Tensor, p: float, training: bool) -> Tensor:
    """[...] `x` with entries dropped, by operations that can be traced in a cell.

    For computations group by group; `Dropout`, which is faster, is for all rows at once.
    """
    if not training or p == 0 or not x.is_cpu:
        return functional.dropout(x, p, training)
    # Half precision has too few numbers between 0 and 1 to compare with a probability.
    drawn = torch.rand_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    return x * drawn.lt_(1 - p).div_(1 - p).to(x.dtype)


class StateDropout(nn.Module):
    """Dropout inside cells: masks for all nodes, drawn in node order before the first level.

    The masks do not depend on the schedule, so every policy and every engine drops the same
    entries. The other entries are scaled by 1 / (1 - p).

    Args:
        p: the probability of dropping an entry.

    Raises:
        ConfigError: if `p` is not a probability below one.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = check_dropout(p)

    def forward(self, x: Tensor, width: int) -> dict[str, Tensor]:
        """{"mask": [num_rows of x, width]} in training, otherwise {}."""
        if not self.training or self.p == 0:
            return {}
        return {"mask": _mask(x, (x.shape[0], width), 1 - self.p)}

    def extra_repr(self) -> str:
        return f"p={self.p}"


#: The modules of torch that drop out, and ours.
_DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout, StateDropout),
)


def drops_out(module: nn.Module) -> bool:
    """True for a module that drops entries out in training.

    Modules that do more than drop out have an attribute `drops_out`.
    """
    if isinstance(module, _DROPOUTS):
        return module.p > 0
    return bool(getattr(module, "drops_out", False))


def _mask(like: Tensor, shape: Sequence[int], keep: float) -> Tensor:
    """[shape] 1 / keep with the probability `keep`, otherwise 0; in the dtype of `like`.

    The probability is exact to 2^-16: each entry uses 16 random bits. On a CPU an entry takes
    0.8 ns; uniform_ takes 2 ns and bernoulli_ 9 ns.
    """
    count = math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=like.device)
    # random_ leaves the sign out, so the bits move up by one.
    bits = words.random_().mul_(2).view(torch.int16)[:count].view(shape)
    least, number = -(1 << 15), round(keep * (1 << 16))  # entries with the least values stay
    mask = torch.empty(shape, dtype=like.dtype, device=like.device)
    return torch.lt(bits, least + min(number, (1 << 16) - 1), out=mask).mul_(1 / keep)


def check_dropout(p: float) -> float:
    """Returns `p`; raises ConfigError if it is not a probability below one."""
    if not 0 <= p < 1:
        raise ConfigError(f"dropout={p} is not a probability. Use a number from 0 to below 1.")
    return p
