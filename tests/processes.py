"""What tests ask about other processes."""

from __future__ import annotations

import os
import time

import pytest


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
