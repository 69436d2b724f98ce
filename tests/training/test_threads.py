"""Threads belong to the run."""

from __future__ import annotations

import os

import pytest
import torch

from graphfold.training.threads import use_threads


@pytest.fixture(autouse=True)
def _threads_as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_number_of_the_config_is_used_here_and_by_child_processes():
    use_threads({"threads": 2})
    assert torch.get_num_threads() == 2
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("config", [{}, {"threads": None}])
def test_without_a_number_torch_decides(config):
    before = torch.get_num_threads()
    use_threads(config)
    assert torch.get_num_threads() == before
