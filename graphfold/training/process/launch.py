"""The processes of one training, which torchrun starts: which of them this is, and their start.

Each runs the whole command. The first one writes, prints and scores; the others compute with it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from uuid import uuid4

from graphfold.errors import ConfigError, ProcessError


def rank() -> int:
    """The number of this process; 0 if it is alone."""
    return int(os.environ["RANK"]) if is_launched() else 0


def is_first() -> bool:
    """True for the process that writes and prints."""
    return rank() == 0


def is_launched() -> bool:
    """True if torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def num_processes(devices: int) -> int:
    """The number of processes that share each step.

    Args:
        devices: `trainer.devices`.

    Raises:
        ConfigError: if torchrun has started others than were asked for, or none.
    """
    if not is_launched():
        if devices > 1:
            raise ConfigError(
                f"trainer.devices is {devices}, which takes as many processes. Run the script by "
                f"torchrun --nproc-per-node={devices}, or train by the command graphfold train."
            )
        return 1
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if devices not in (1, here):
        raise ConfigError(
            f"trainer.devices is {devices}, but torchrun has started {here} processes on this "
            "machine. Leave trainer.devices out."
        )
    return int(os.environ["WORLD_SIZE"])


def start_processes(count: int, words: Sequence[str]) -> int:
    """Runs a command of graphfold in some processes of torchrun, and returns its exit code.

    Args:
        count: the number of processes.
        words: the command line.

    Raises:
        ProcessError: if a process was killed; the others end with it.
    """
    import torch
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logger = logging.getLogger("torch.distributed.elastic")  # the processes report for themselves
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // count)))
    config = LaunchConfig(
        *(1, 1, count),
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "graphfold", *words)
    except SignalException:
        return 1
    except ChildFailedError as error:
        number, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise ProcessError(
                f"process {number} of {count} was killed by signal {-failure.exitcode}, and the "
                "others ended with it. It may have run out of memory. The checkpoints of whole "
                "epochs are kept: the run goes on with resume=RUN."
            ) from error
        return int(failure.exitcode)
    return 0
