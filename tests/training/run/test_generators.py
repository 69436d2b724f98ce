"""Random generators go on exactly where they were."""

from __future__ import annotations

import io
import random

import numpy as np
import torch

from graphfold.training.run.generators import capture_generators, restore_generators


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
