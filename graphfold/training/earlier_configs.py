"""Configs of earlier versions, so that their runs and checkpoints are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what the model's options are called today.

    `model.recompute` has gone. `model.fuse: true` was written into every run whose machine had a C
    compiler, and meant "where that can be".
    """
    model = config.get("model")
    if not isinstance(model, Mapping) or "recompute" not in model:
        return dict(config)
    model = {name: value for name, value in model.items() if name != "recompute"}
    if model.get("fuse"):
        model["fuse"] = None
    return {**config, "model": model}
