"""The environment of processes that launchers start, as it was read there."""

from __future__ import annotations

import pytest

#: What torchrun sets in the second process of the third of three machines.
BY_TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "3",
}

#: Read in SLURM 22.05, in the second task of `srun --nodes=3 --ntasks=5`.
BY_SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "gpu[01-03]",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "5",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[01-03]",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
}

#: The same in a batch script, `sbatch --nodes=2 --ntasks-per-node=2`, where one process runs.
IN_BATCH_SCRIPT = {
    "SLURM_JOB_ID": "2",
    "SLURM_JOB_NODELIST": "gpu[01-02]",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}

#: The same in the shell of `salloc --nodes=2 --ntasks=4`, which is a task of its own.
IN_SALLOC = {
    **IN_BATCH_SCRIPT,
    "SLURM_PTY_PORT": "38265",
    "SLURM_STEP_ID": "4294967290",
    "SLURM_STEP_NODELIST": "gpu01",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}

#: The same in the shell of `srun --nodes=2 --pty bash`, which has a terminal.
IN_SHELL = {
    **BY_SRUN,
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_PTY_PORT": "39129",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}

#: The same in a batch script of one task that a task of two submitted, which inherits from it.
IN_INHERITED = {**IN_SHELL, "SLURM_NTASKS": "1"}


def set_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Gives this process the environment of one that a launcher started, without a terminal."""
    for name in (*BY_TORCHRUN, *BY_SRUN):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("graphfold.training.process.launch._has_terminal", lambda: False)
