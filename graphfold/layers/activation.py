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

#: The same in place.
_IN_PLACE: Mapping[str, Activation] = {
    "none": _identity,
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}


def get_activation(name: str, in_place: bool = False) -> Activation:
    """The activation called `name`.

    Args:
        name: a key of `ACTIVATIONS`.
        in_place: whether it overwrites its input, which nothing else reads, such as the product of
            a linear layer: for a large batch, another tensor costs more in page faults than the
            arithmetic.

    Raises:
        ConfigError: if there is none; the message has the nearest name.
    """
    if name not in ACTIVATIONS:
        raise ConfigError(
            f"there is no activation '{name}'.{did_you_mean(name, ACTIVATIONS)} "
            f"Use one of {', '.join(ACTIVATIONS)}."
        )
    return (_IN_PLACE if in_place else ACTIVATIONS)[name]
