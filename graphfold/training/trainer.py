"""Trainer: the options of training beside data, model and optimizer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from graphfold.errors import ConfigError
from graphfold.options import From1, Limits, section_faults

if TYPE_CHECKING:
    import torch

#: Precision -> the dtype of the parameters, and the dtype of matrix products if it differs.
PRECISIONS = {
    "32-true": ("float32", None),
    "64-true": ("float64", None),
    "16-true": ("float16", None),
    "bf16-true": ("bfloat16", None),
    "16-mixed": ("float32", "float16"),
    "bf16-mixed": ("float32", "bfloat16"),
}
ALIASES = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}

#: The names of precisions, and their aliases.
Precision = (
    Literal["32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed"]
    | Literal["32", "64", "16", "bf16", 32, 64, 16]
)

#: A number of batches, or a share of them.
Limit = From1 | Annotated[float, Limits(above=0, most=1)]


@dataclass(frozen=True)
class Trainer:
    """The options of training, as the config group `trainer` names them.

    Args:
        max_epochs: the largest number of epochs.
        accelerator: auto (a GPU if there is one), cpu, gpu or cuda.
        devices: the number of processes on a machine that share each step; each has its own GPU, if
            there are GPUs. On several machines torchrun starts the processes.
        precision: 32-true, 64-true, 16-true, bf16-true, 16-mixed or bf16-mixed.
        accumulate_grad_batches: batches per step.
        gradient_clip_val: largest norm of the gradient of a step; None for any.
        limit_train_batches: the number of batches of an epoch that are trained, or their share, a
            float; None for all.
        limit_val_batches: the same for validation, whose batches then have `data.batch_size`
            records; without a limit they have more.
        detect_anomaly: whether torch looks for the operation whose gradient is NaN, slowly.

    Raises:
        ConfigError: for any other value.
    """

    max_epochs: From1 = 20
    accelerator: Literal["auto", "cpu", "gpu", "cuda"] = "auto"
    devices: Annotated[int, Limits(least=1, most=1_024)] = 1
    precision: Precision | None = "32-true"
    accumulate_grad_batches: From1 = 1
    gradient_clip_val: Annotated[float, Limits(least=0)] | None = None
    limit_train_batches: Limit | None = None
    limit_val_batches: Limit | None = None
    detect_anomaly: bool = False

    def __post_init__(self) -> None:
        faults = [*section_faults(Trainer, vars(self), "trainer")]
        if faults:
            raise ConfigError("\n".join(faults))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return self._dtypes()[0]

    @property
    def scales_gradients(self) -> bool:
        """True if losses are scaled, so that gradients in half precision do not become zero."""
        return self._full_precision() == "16-mixed"

    def device(self, number: int = 0) -> torch.device:
        """The device of the process with this number on this machine.

        Raises:
            ConfigError: if there are no such devices.
        """
        import torch

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

    def autocast(
        self, device: torch.device, caches_weights: bool = True
    ) -> AbstractContextManager[object]:
        """The context of mixed precision, or of nothing for other precisions.

        Args:
            device: where it is used.
            caches_weights: whether weights are converted once. A training step converts them at
                each use: gradients of a single conversion would be summed in half precision.
        """
        import torch

        mixed = self._dtypes()[1]
        if mixed is None:
            return nullcontext()
        return torch.autocast(device.type, dtype=mixed, cache_enabled=caches_weights)

    @staticmethod
    def limited(count: int, limit: float | None) -> int:
        """The number of batches after a limit, at least one of `count`."""
        if limit is None or not count:
            return count
        return max(1, int(count * limit)) if isinstance(limit, float) else min(count, limit)

    def _dtypes(self) -> tuple[torch.dtype, torch.dtype | None]:
        import torch

        of_weights, mixed = PRECISIONS[self._full_precision()]
        return getattr(torch, of_weights), None if mixed is None else getattr(torch, mixed)

    def _full_precision(self) -> str:
        name = "32-true" if self.precision is None else str(self.precision)
        return ALIASES.get(name, name)
