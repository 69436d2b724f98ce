"""Learning rates of parts of a model, as factors of the optimizer's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from graphfold.errors import ConfigError
from graphfold.training.loop.part_names import is_part, refuse_unknown_parts


def read_factors(model: nn.Module, factors: Mapping[str, float]) -> dict[nn.Parameter, float]:
    """The factor of each weight that has one; that of the longest name counts.

    Args:
        model: the model.
        factors: name of a part -> factor.

    Raises:
        ConfigError: if a name matches no weight.
    """
    named = dict(model.named_parameters())
    refuse_unknown_parts("lr_factors", list(factors), list(named))
    found: dict[nn.Parameter, float] = {}
    for part in sorted(factors, key=len):
        found |= {p: float(factors[part]) for name, p in named.items() if is_part(name, [part])}
    return found


def learning_rate(make: Callable[..., Optimizer]) -> float:
    """The learning rate that an optimizer would be made with.

    Args:
        make: its class, or a partial of it.

    Raises:
        ConfigError: if it has none.
    """
    options = inspect.signature(make).parameters
    lr: Any = options["lr"].default if "lr" in options else None
    if not isinstance(lr, int | float):
        raise ConfigError("lr_factors needs an optimizer with a learning rate. Set optimizer.lr.")
    return float(lr)


def rate_without_factors(optimizer: Optimizer, factors: Mapping[nn.Parameter, float]) -> float:
    """The learning rate of weights whose factor is 1.

    Args:
        optimizer: the optimizer, each of whose groups has one factor.
        factors: weight -> factor; 1 where it has none.
    """
    rates = {factors.get(g["params"][0], 1.0): float(g["lr"]) for g in optimizer.param_groups}
    largest = max(rates)
    return rates[largest] / (largest or 1.0)


def refuse_lost_factors(optimizer: Optimizer, before: list[float]) -> None:
    """Raises ConfigError if a schedule gave the groups other learning rates than factors of one.

    Args:
        optimizer: the optimizer, with its schedule.
        before: the learning rates of its groups without the schedule.
    """
    after = [float(group["lr"]) for group in optimizer.param_groups]
    if any(abs(a * before[0] - after[0] * b) > 1e-9 for a, b in zip(after, before, strict=True)):
        raise ConfigError(
            "lr_factors: the schedule of the learning rate gives all weights the same one. Take "
            "another lr_scheduler, or leave lr_factors out."
        )
