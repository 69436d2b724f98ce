"""Trainer: the options of training that are no matter of data, model or optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import is_number
from graphfold.training.config.from_lightning import foreign_options

#: Precision -> the type of the parameters, and that of matrix products where it is another.
PRECISIONS = {
    "32-true": (torch.float32, None),
    "64-true": (torch.float64, None),
    "16-true": (torch.float16, None),
    "bf16-true": (torch.bfloat16, None),
    "16-mixed": (torch.float32, torch.float16),
    "bf16-mixed": (torch.float32, torch.bfloat16),
}
ALIASES = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}

ACCELERATORS = ("auto", "cpu", "gpu", "cuda")


@dataclass(frozen=True)
class Trainer:
    """The options of training, as the config group `trainer` names them.

    Args:
        max_epochs: how many epochs there are at most.
        accelerator: auto (a GPU if there is one), cpu, gpu or cuda.
        devices: how many processes share each step; on GPUs each has one of its own.
        precision: 32-true, 64-true, 16-true, bf16-true, 16-mixed or bf16-mixed.
        accumulate_grad_batches: batches per step.
        gradient_clip_val: largest norm of the gradient of a step; None for any.
        limit_train_batches: so many batches of an epoch are trained, or this share of them if it
            is no whole number; None for all.
        limit_val_batches: the same of the batches that are validated.
        detect_anomaly: whether torch looks for the operation whose gradient is NaN, slowly.

    Raises:
        ConfigError: for a value that is none of these.
    """

    max_epochs: int = 20
    accelerator: str = "auto"
    devices: int = 1
    precision: str | int | None = "32-true"
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    detect_anomaly: bool = False

    def __post_init__(self) -> None:
        _refuse_other("accelerator", self.accelerator, ACCELERATORS)
        if _full_name(self.precision) not in PRECISIONS:
            _refuse_other("precision", self.precision, PRECISIONS)
        for name in ("limit_train_batches", "limit_val_batches"):
            value = getattr(self, name)
            is_share = isinstance(value, float) and 0 < value <= 1
            is_count = isinstance(value, int) and is_number(value) and value >= 1
            if value is not None and not is_share and not is_count:
                raise ConfigError(
                    f"trainer.{name} is {value!r}, but it must be a whole number from 1 on, or a "
                    "share between 0 and 1 such as 0.25. Correct it."
                )

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return parameter_dtype({"precision": self.precision})

    @property
    def scales_gradients(self) -> bool:
        """True if losses are scaled, so that gradients in half precision do not become zero."""
        return _full_name(self.precision) == "16-mixed"

    def device(self, number: int = 0) -> torch.device:
        """The device of the process with this number on this machine.

        Raises:
            ConfigError: if there are no such devices.
        """
        is_gpu = self.accelerator in ("gpu", "cuda")
        if self.accelerator == "auto":
            is_gpu = torch.cuda.is_available()
        if not is_gpu:
            if self.scales_gradients:
                raise ConfigError(
                    "trainer.precision=16-mixed is for GPUs. Set trainer.precision=bf16-mixed."
                )
            return torch.device("cpu")
        count = torch.cuda.device_count()
        if count <= number or count < self.devices:
            raise ConfigError(
                f"trainer asks for {max(self.devices, number + 1)} GPUs, but torch sees {count}. "
                "Set trainer.devices, or trainer.accelerator=cpu."
            )
        return torch.device("cuda", number)

    def autocast(self, device: torch.device) -> torch.autocast:
        """Mixed precision for a block, if that was asked for.

        Weights are converted at each use: the gradients of one conversion would be added up in half
        precision.
        """
        return autocast(device, {"precision": self.precision}, caches_weights=False)

    @staticmethod
    def limited(count: int, limit: float | None) -> int:
        """The number of batches out of `count` that a limit leaves, at least one."""
        if limit is None or not count:
            return count
        return max(1, int(count * limit)) if isinstance(limit, float) else min(count, limit)


def trainer_of(options: Mapping[str, Any]) -> Trainer:
    """The trainer that the config group describes.

    Raises:
        ConfigError: for an option that it does not have, or a value that it cannot have.
    """
    given = {name: value for name, value in options.items() if name != "_target_"}
    faults = [*foreign_options(given)]
    if faults:
        raise ConfigError("\n".join(faults))
    return Trainer(**given)


def parameter_dtype(options: Mapping[str, Any]) -> torch.dtype:
    """The type of the parameters that the options of a trainer ask for."""
    return PRECISIONS[_precision(options)][0]


def autocast(
    device: torch.device, options: Mapping[str, Any], caches_weights: bool = True
) -> torch.autocast:
    """Mixed precision as a trainer with these options has it."""
    kind = PRECISIONS[_precision(options)][1]
    return torch.autocast(
        device.type,
        dtype=kind or torch.bfloat16,
        enabled=kind is not None,
        cache_enabled=caches_weights,
    )


def _precision(options: Mapping[str, Any]) -> str:
    name = _full_name(options.get("precision"))
    return name if name in PRECISIONS else "32-true"


def _full_name(precision: str | int | None) -> str:
    name = "32-true" if precision is None else str(precision)
    return ALIASES.get(name, name)


def _refuse_other(name: str, value: Any, known: Mapping[str, Any] | tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"trainer.{name} is {value!r}, but it is one of {', '.join(known)}."
            f"{did_you_mean(str(value), known)} Correct it."
        )
