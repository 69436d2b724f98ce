"""The processes of one training that others have started: torchrun, or Lightning for each rank.

Each of them runs the whole command. The first one (rank 0) keeps the lock of the run folder, writes
into it, prints and scores; the others compute with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from graphfold.errors import ConfigError

#: What torchrun sets beside rank and number of processes.
TORCHRUN = "TORCHELASTIC_RUN_ID"


def rank() -> int:
    """The number of this process; 0 if it is alone, or the first."""
    for name in ("RANK", "LOCAL_RANK"):  # Lightning's own processes have no RANK
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0


def is_first() -> bool:
    """True for the process that writes and prints."""
    return rank() == 0


@contextmanager
def printing_once() -> Iterator[None]:
    """Within, only the first process prints."""
    if is_first():
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def trainer_settings(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Lightning's devices, nodes and strategy: those of the config, or of torchrun.

    Args:
        trainer: the config group `trainer`.

    Raises:
        ConfigError: if torchrun has started another number of processes than were asked for.
    """
    devices, strategy = trainer["devices"], trainer.get("strategy", "auto")
    if TORCHRUN not in os.environ:
        if strategy == "auto" and devices > 1:
            # Processes are started by this one, so that a command runs once and no script twice.
            strategy = "ddp_spawn"
        return {"devices": devices, "strategy": strategy}
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if devices not in (1, here):
        raise ConfigError(
            f"trainer.devices is {devices}, but torchrun has started {here} processes here. Leave "
            "trainer.devices out."
        )
    if strategy == "auto" and world > 1:
        strategy = "ddp"
    return {"devices": here, "num_nodes": world // here, "strategy": strategy}
