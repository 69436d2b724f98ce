"""Which of the processes of a launcher this one is, by the variables of its environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from training.launches import (
    BY_SRUN,
    BY_TORCHRUN,
    IN_BATCH_SCRIPT,
    IN_INHERITED,
    IN_SALLOC,
    IN_SHELL,
    set_environment,
)

from graphfold.training.process.launch import (
    Launch,
    first_host,
    is_first,
    launch,
    leave_launch,
    rank,
)


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, 0),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),  # torchrun on the third machine
        ({"RANK": "0", "LOCAL_RANK": "0"}, 0),
        ({"RANK": "x"}, 0),
        (BY_SRUN, 1),
        ({**BY_SRUN, "RANK": "0"}, 0),  # torchrun that srun has started
    ],
)
def test_the_number_of_a_process(
    environment: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch, environment)
    assert rank() == number
    assert is_first() is (number == 0)


def test_launches_of_torchrun_and_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, BY_TORCHRUN)
    assert launch() == Launch("torchrun", 5, 6, 1, 2, 3, "env://")
    set_environment(monkeypatch, BY_SRUN)
    assert launch() == Launch("srun", 1, 5, 1, 2, 3, "tcp://gpu01:10007")
    set_environment(monkeypatch, {**BY_SRUN, "SLURM_PROCID": "4", "SLURM_NODEID": "2"})
    monkeypatch.setenv("SLURM_LOCALID", "0")
    assert launch() == Launch("srun", 4, 5, 0, 1, 3, "tcp://gpu01:10007")


def test_steps_of_a_job_meet_at_different_places(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, BY_SRUN)
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert launch()[-1] == "tcp://gpu01:11007"
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "5")  # one machine need not know its name
    assert launch()[-1] == "tcp://localhost:11007"
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert launch()[-1] == "tcp://10.0.0.1:29500"


@pytest.mark.parametrize("environment", [{}, IN_BATCH_SCRIPT, IN_SALLOC, IN_INHERITED])
def test_a_process_that_was_started_by_itself_waits_for_no_other(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch, environment)
    assert launch() is None
    assert is_first()


@pytest.mark.parametrize("has_terminal", [True, False])
def test_a_shell_of_several_tasks_is_known_by_its_terminal(has_terminal: bool) -> None:
    """Of the tasks of `srun --pty` one has a terminal, and runs what is typed there."""
    program = "from graphfold.training.process.launch import launch; print(launch() is None)"
    command = [sys.executable, "-c", program]
    if has_terminal:  # whatever standard input is
        words = ["sh", "-c", f"{shlex.join(command)} < /dev/null"]
        command = [sys.executable, "-c", f"import pty; pty.spawn({words})"]
    done = subprocess.run(
        command,
        env={**os.environ, **IN_SHELL},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert done.stdout.split() == [str(has_terminal)]


def test_a_process_can_leave_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in (BY_TORCHRUN, BY_SRUN):
        set_environment(monkeypatch, environment)
        assert not is_first()
        leave_launch()
        assert is_first()
        assert launch() is None


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("cpu1", "cpu1"),
        ("gpu[07-09,11],cpu1", "gpu07"),
        ("gpu[12,14]", "gpu12"),
        ("cpu1,gpu[07-09]", "cpu1"),
        ("rack[2-3]node[10-12].site", "rack2node10.site"),
    ],
)
def test_the_first_machine_of_a_list(names: str, host: str) -> None:
    assert first_host(names) == host
