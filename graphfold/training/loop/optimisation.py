"""Optimisation: which weights of a model learn when, at which rate, by which optimizer.

A part of a model is a dotted name, which stands for all weights whose names begin with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Optimizer

from graphfold.errors import ConfigError, did_you_mean
from graphfold.training.config.training_config import Stage

#: Arguments of schedules of the learning rate that say for how many epochs they are made.
LENGTHS = ("T_max", "total_steps")


class StagedModel:
    """A model whose parts are frozen as the current stage says.

    A frozen part is not updated, and its modules are in evaluation mode: no dropout, and the
    statistics of normalisation stay.

    Args:
        model: the model; what does not require gradients at first never does.
        stages: the stages, in order.

    Attributes:
        number: the position of the current stage; that of the first epoch at first.

    Raises:
        ConfigError: if a name matches no weight, or a stage freezes all of them.
    """

    def __init__(self, model: nn.Module, stages: Sequence[Stage]) -> None:
        self.model = model
        self.stages = tuple(stages)
        self._learnable = {name for name, p in model.named_parameters() if p.requires_grad}
        for stage in self.stages:
            self._check(stage)
        self.number = 0
        self._freeze()

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self.stages[self.number]

    @property
    def num_epochs(self) -> int:
        """The epochs of all stages."""
        return sum(stage.epochs for stage in self.stages)

    def enter(self, epoch: int) -> bool:
        """Goes to the stage of an epoch, counted from 0; True if it is another one.

        Epochs beyond the last stage belong to it: a run may be given more of them.
        """
        ends = accumulate(stage.epochs for stage in self.stages[:-1])
        number = sum(epoch >= end for end in ends)
        is_other, self.number = number != self.number, number
        self._freeze()
        return is_other

    def hold(self) -> None:
        """Puts frozen modules into evaluation mode, and all others into training mode."""
        self.model.train()
        for name, module in self.model.named_modules():
            if is_part(name, self.stage.frozen):
                module.eval()

    def __str__(self) -> str:
        """The current stage in a line; nothing of a run that has only one and freezes nothing."""
        if len(self.stages) == 1 and not self.stage.frozen:
            return ""
        frozen = ", ".join(self.stage.frozen)
        lr = "" if self.stage.lr is None else f", lr {self.stage.lr:g}"
        place = f"stage {self.number + 1}/{len(self.stages)}: {self.stage.epochs} epochs"
        return f"{place}{lr}{f', {frozen} frozen' if frozen else ''}"

    def _freeze(self) -> None:
        for name, parameter in self.model.named_parameters():
            is_frozen = is_part(name, self.stage.frozen)
            parameter.requires_grad_(name in self._learnable and not is_frozen)

    def _check(self, stage: Stage) -> None:
        weights = [name for name, _ in self.model.named_parameters()]
        refuse_unknown_parts("freeze", stage.frozen, weights)
        if stage.frozen and all(is_part(name, stage.frozen) for name in self._learnable):
            raise ConfigError(
                f"freeze=[{', '.join(stage.frozen)}] leaves no weight to train. Freeze fewer parts."
            )


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


def build_optimizer(
    make: Callable[..., Optimizer],
    parameters: Sequence[nn.Parameter],
    sparse: Iterable[nn.Parameter] = (),
    factors: Mapping[nn.Parameter, float] | None = None,
) -> Optimizer:
    """Calls `make`; on a CPU, torch's own optimizers are made with fused=True.

    They then update a parameter in one pass over its memory. Their default there takes one pass,
    and one temporary of the parameter's size, for each operation: five times as long for a table
    of embeddings. On a GPU their default is well chosen.

    Args:
        make: an optimizer's class, or a partial of it; where it sets `fused` or `foreach`, that
            stays.
        parameters: what it updates.
        sparse: those of them whose gradients are sparse; they are in a group of their own, which
            is not fused, for torch's fused optimizers refuse such gradients.
        factors: of the learning rate, where that is not 1.

    Raises:
        ConfigError: if there are factors, but no learning rate.
    """
    apart = set(sparse)
    by_kind: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        kind = parameter in apart, (factors or {}).get(parameter, 1.0)
        by_kind.setdefault(kind, []).append(parameter)
    groups: list[dict[str, Any]] = []
    for (is_sparse, factor), members in sorted(by_kind.items(), key=lambda item: item[0]):
        options = {"fused": False} if is_sparse else {}
        rate = {} if factor == 1 else {"lr": factor * learning_rate(make)}
        groups.append({"params": members, **options, **rate})
    if apart:
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        if not checks.is_enabled():
            checks.disable()  # they are off in any case; said aloud, torch does not warn of it
    if _may_be_fused(make) and all(p.device.type == "cpu" for p in parameters):
        return make(groups, fused=True)
    return make(groups)


def skips_absent_rows(make: Callable[..., Optimizer]) -> bool:
    """True if an optimizer leaves a row as it is where the gradient is zero.

    Then rows without a gradient need not be looked at, and a sparse gradient gives the very same
    update. It holds for Adagrad, and for SGD without momentum, both without weight decay.
    """
    kind, options = getattr(make, "func", make), getattr(make, "keywords", {})
    if kind not in (Adagrad, SGD) or options.get("fused") or options.get("foreach"):
        return False
    return not any(options.get(name) for name in ("weight_decay", "momentum", "maximize"))


def _may_be_fused(make: Callable[..., Optimizer]) -> bool:
    options = inspect.signature(make).parameters
    is_free = all(
        name in options and options[name].default is None for name in ("fused", "foreach")
    )
    return is_free and getattr(make, "func", make).__module__.startswith("torch.optim.")


def add_gradients(loss: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Adds the gradients of a loss to those of all parameters, or, if memory runs out, of none."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    seen: set[int] = set()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        # autograd may give one tensor to two parameters, or an expanded one; ours is written to
        if not gradient.is_sparse:
            if not gradient.is_contiguous() or gradient.data_ptr() in seen:
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen.add(gradient.data_ptr())
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


def is_part(name: str, of: Sequence[str]) -> bool:
    """True if a dotted name is one of some parts or lies in one."""
    return any(name == part or name.startswith(f"{part}.") for part in of)


def refuse_unknown_parts(option: str, parts: Sequence[str], weights: Sequence[str]) -> None:
    """Raises ConfigError for the first part without weights.

    Args:
        option: what names the parts, for the message.
        parts: their names.
        weights: the names of all weights of the model.
    """
    for wanted in parts:
        if not any(is_part(name, [wanted]) for name in weights):
            known = list(dict.fromkeys(_beginnings(weights)))
            top = [name for name in known if "." not in name]
            raise ConfigError(
                f"{option} names '{wanted}', but no weights of the model are called so."
                f"{did_you_mean(wanted, known)} Its parts are {', '.join(top)}, and parts of "
                f"them such as {max(known, key=lambda name: name.count('.'))}."
            )


def _beginnings(names: Sequence[str]) -> Iterator[str]:
    """All dotted names that names begin with."""
    for name in names:
        yield from accumulate(name.split("."), lambda a, b: f"{a}.{b}")
