"""Activations by name, as configs give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from graphfold.errors import ConfigError, did_you_mean

Activation = Callable[[Tensor], Tensor]


def _identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: Mapping[str, Activation] = {
    "none": _identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def get_activation(name: str) -> Activation:
    """The activation called `name`; raises ConfigError with the nearest name if there is none."""
    if name not in ACTIVATIONS:
        raise ConfigError(
            f"there is no activation '{name}'.{did_you_mean(name, ACTIVATIONS)} "
            f"Use one of {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]
