"""A callback that a config names, and that notes facts of the run."""

from __future__ import annotations

from typing import Any

import torch

from graphfold.training import Callback, Loop


class Spy(Callback):
    """Notes facts at the start of training, in `Spy.facts`."""

    facts: dict[str, Any] = {}

    def on_fit_start(self, loop: Loop) -> None:
        Spy.facts = {
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "threads": torch.get_num_threads(),
            "precision": loop.trainer.precision,
            "device": loop.device.type,
        }


#: Overrides that add it.
SPY = ["+callbacks.spy._target_=effects.spies.Spy"]
