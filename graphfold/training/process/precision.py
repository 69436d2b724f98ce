"""The meaning of `trainer.precision` for a model that computes outside of Lightning's loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

#: What Lightning takes for short.
_ALIASES = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}
_PARAMETERS = {"64-true": torch.float64, "16-true": torch.float16, "bf16-true": torch.bfloat16}
_MIXED = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def parameter_dtype(trainer: Mapping[str, Any]) -> torch.dtype:
    """The type of the parameters that the settings of a trainer ask for."""
    return _PARAMETERS.get(_precision(trainer), torch.float32)


def autocast(device: torch.device, trainer: Mapping[str, Any]) -> torch.autocast:
    """Mixed precision as a trainer of these settings has it."""
    kind = _MIXED.get(_precision(trainer))
    return torch.autocast(device.type, dtype=kind or torch.bfloat16, enabled=kind is not None)


def _precision(trainer: Mapping[str, Any]) -> str:
    said = str(trainer.get("precision") or "32-true")
    return _ALIASES.get(said, said)
