"""Whether cells have kernels of their own: settled when a run begins, and kept with it.

Kernels round in their own way, so a run that went on without them, or an evaluation, would differ
from it in the last digits.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from graphfold.batching.engine.programs.fusion.choice import is_quick, is_wanted, prepare_kernels
from graphfold.errors import EngineError
from graphfold.training.precision import is_full, parameter_dtype


def settle_kernels(config: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The config of a new run, with `model.fuse` settled where it is null and not on CUDA.

    Then cells have kernels if this machine can compile them, unless the run is to be deterministic
    or there are none for its engine or precision.

    Args:
        config: the config of a run.
        device: where it computes.

    Raises:
        EngineError: if the config asks for kernels that cannot be had.
    """
    model = config["model"]
    is_wanted(model.get("fuse"), device)
    if device.type == "cpu" and "fuse" in model and model["fuse"] is None:
        is_fast = model.get("engine", "fast") == "fast"
        may_have = is_fast and is_full(config["trainer"]) and not config.get("deterministic")
        model = {**model, "fuse": may_have and is_quick(device)}
    return _prepared({**config, "model": model}, device)


def available_kernels(config: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The config of a run that there is, without kernels where they cannot be had: it warns then.

    Args:
        config: the config of a run.
        device: where it computes now.
    """
    try:
        is_wanted(config["model"].get("fuse"), device)
    except EngineError as error:
        warnings.warn(
            f"the run had kernels for its cells, and goes on without them: {error} Last digits may "
            "differ.",
            stacklevel=2,
        )
        return {**config, "model": {**config["model"], "fuse": False}}
    return _prepared(config, device)


def _prepared(config: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The config, when the compiler has been set to work if it says so."""
    if config["model"].get("fuse"):
        prepare_kernels(device, parameter_dtype(config["trainer"]))
    return dict(config)


def describe_kernels(config: Mapping[str, Any]) -> str:
    """What is to be said of them in a line; nothing where nothing is settled."""
    fuse = config["model"].get("fuse")
    return "" if fuse is None else f"kernels for cells: {'compiled here' if fuse else 'none'}"
