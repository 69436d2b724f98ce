"""Threads belong to the run; memory is kept for the next step; generators go on where they were."""

from __future__ import annotations

import ctypes
import io
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from graphfold.training.process.process import (
    capture_generators,
    prepare_process,
    restore_generators,
)


@pytest.fixture(autouse=True)
def _environment_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_the_number_of_the_config_is_used_here_and_by_child_processes() -> None:
    assert prepare_process(2) == "threads: 2"
    assert torch.get_num_threads() == 2
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_without_a_number_torch_decides() -> None:
    before = torch.get_num_threads()
    prepare_process(None)
    assert torch.get_num_threads() == before


FAULTS = """
import resource, torch
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(40)))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    os.name != "posix" or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="only glibc can be told to keep memory",
)
def test_freed_memory_is_used_again_without_page_faults() -> None:
    def faults(setting: str) -> int:
        code = FAULTS.format(setting=setting)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
        command = [sys.executable, "-c", code]
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    kept = faults("import graphfold; graphfold.keep_memory()")
    assert kept < faults("") / 2


def draw() -> tuple[float, float, float, float]:
    return random.gauss(0, 1), np.random.normal(), torch.rand(()).item(), random.random()  # noqa: NPY002


def test_the_same_numbers_again_after_a_round_trip_through_a_file() -> None:
    draw()  # leaves a second Gaussian number waiting in both older generators
    buffer = io.BytesIO()
    torch.save(capture_generators(), buffer)
    first = [draw() for _ in range(3)]
    buffer.seek(0)
    restore_generators(torch.load(buffer, weights_only=True))
    assert [draw() for _ in range(3)] == first
