"""Processes with the environment of those that torchrun starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from processes import START_METHOD
from torch.multiprocessing import start_processes

#: What torchrun sets in the second process of the third of three machines.
BY_TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}


def in_two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """Calls a function in two forks of this process, and waits for their end."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    start_processes(_work, (port, work, arguments), nprocs=2, start_method=START_METHOD)


def _work(number: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "two",
        **{name: str(number) for name in ("RANK", "LOCAL_RANK")},
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2"),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    work(*arguments)
