"""What tests ask about other processes, and how they start them."""

from __future__ import annotations

import os
import time

import pytest
import torch

#: How tests start processes that train: forks need not load torch, but in a torch built for
#: GPUs autograd has threads of its own, which a fork after any backward does not have.
START_METHOD = "fork" if torch.version.cuda is None else "spawn"


def wait_until_gone(pid: int) -> None:
    """Waits for the end of a process that need not be a child of this one."""
    for _ in range(300):
        if not is_alive(pid):
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} goes on")


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
