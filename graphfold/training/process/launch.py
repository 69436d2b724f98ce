"""The launcher of this process: torchrun, SLURM's srun, or none.

Both start processes that each run the whole command. Variables of the environment say how many
there are, and which one this is.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

#: What torchrun sets beside rank and number of processes.
TORCHRUN = "TORCHELASTIC_RUN_ID"

#: The number of processes that srun has started. A batch script has it from no srun of its own.
_TASKS = "SLURM_STEP_NUM_TASKS"

#: Ports below those that Linux gives away by itself.
_FIRST_PORT, _NUM_PORTS = 10_000, 20_000


class Launch(NamedTuple):
    """Processes that a launcher has started, of which this is one.

    Args:
        launcher: torchrun or srun.
        rank: the number of this process.
        world_size: how many processes there are.
        local_rank: the number of this process among those of its machine.
        local_size: how many processes its machine has.
        num_nodes: how many machines there are.
        meeting_point: where they meet, as `init_process_group` of torch takes it.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    local_size: int
    num_nodes: int
    meeting_point: str


def launch() -> Launch | None:
    """The launch that this process belongs to; None if it was started by itself."""
    if TORCHRUN in os.environ:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
        rank, size, local_rank, local_size, num_nodes = (int(os.environ[name]) for name in names)
        return Launch("torchrun", rank, size, local_rank, local_size, num_nodes, "env://")
    if not _is_task_of_several():
        return None
    tasks = _tasks_per_node(os.environ["SLURM_STEP_TASKS_PER_NODE"])
    return Launch(
        "srun",
        int(os.environ["SLURM_PROCID"]),
        int(os.environ[_TASKS]),
        int(os.environ["SLURM_LOCALID"]),
        tasks[int(os.environ["SLURM_NODEID"])],
        len(tasks),
        _meeting_point(is_one_machine=len(tasks) == 1),
    )


def leave_launch() -> None:
    """Makes this process one of its own, as if no launcher had started it.

    Each of the processes then does work of its own: srun starts the workers of a search.
    """
    for name in ("RANK", TORCHRUN, _TASKS):
        os.environ.pop(name, None)


def rank() -> int:
    """The number of this process; 0 if it is alone, or the first."""
    value = os.environ.get("RANK", "")
    if value.isdecimal():
        return int(value)
    launched = launch()
    return 0 if launched is None else launched.rank


def is_first() -> bool:
    """True for the process that writes and prints."""
    return rank() == 0


def _is_task_of_several() -> bool:
    """True if srun started this process beside others that run the same command.

    Jobs have such variables although one process runs in them: a batch script, and an interactive
    shell (`srun --nodes=2 --pty bash`), which has a terminal. A job that was submitted from a
    task inherits some of the task, but not the number of tasks.
    """
    count = os.environ.get(_TASKS, "1")
    return count != "1" and count == os.environ.get("SLURM_NTASKS") and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _tasks_per_node(text: str) -> list[int]:
    """The tasks of each machine: [2, 2, 1] of `2(x2),1`."""
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]


def _meeting_point(is_one_machine: bool) -> str:
    """An address on the first machine, with a port that the number of the step chooses."""
    job, step = int(os.environ["SLURM_JOB_ID"]), int(os.environ["SLURM_STEP_ID"])
    port = _FIRST_PORT + (job + 1_000 * step) % _NUM_PORTS
    host = "localhost" if is_one_machine else first_host(os.environ["SLURM_STEP_NODELIST"])
    return f"tcp://{os.environ.get('MASTER_ADDR', host)}:{os.environ.get('MASTER_PORT', port)}"


def first_host(names: str) -> str:
    """The first of SLURM's list of machines: gpu07 of `gpu[07-09,11],cpu1`."""
    hosts = re.match(r"(?:[^,\[]|\[[^\]]*\])+", names)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", hosts[0] if hosts else names)
