"""Threads of torch: a setting of the whole process, which only the commands change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch


def use_threads(config: Mapping[str, Any]) -> None:
    """Lets torch compute on as many threads as a run's config says.

    The number belongs to the run, since sums over other shares differ in their last digits: so
    `evaluate` repeats what training printed. Processes that this one starts follow it too.

    Args:
        config: the config of a run; without `threads`, or with null, torch decides.
    """
    number = config.get("threads")
    if number is not None:
        torch.set_num_threads(number)
        os.environ["OMP_NUM_THREADS"] = str(number)
