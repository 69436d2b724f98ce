"""Verify: how far two results are apart."""

from __future__ import annotations

import math

import pytest
import torch

from graphfold.inference.verify import Comparison, distance

ONES, NONE = torch.ones(2), torch.zeros(0, 3)


def test_differences_are_relative_to_large_values_only():
    assert distance([ONES / 4], [ONES / 2]) == 0.25
    assert distance([ONES * 6], [ONES * 8]) == 0.25
    assert distance([ONES, ONES / 2, ONES], [ONES] * 3) == 0.5


def test_nothing_is_equal_to_nothing():
    assert distance([], []) == 0
    assert distance([NONE], [NONE]) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_counts_wherever_it_stands(place):
    got = [ONES.clone() for _ in range(3)]
    got[place][1] = math.nan
    assert math.isnan(distance(got, [ONES] * 3))


def test_json_has_null_for_what_it_cannot_hold():
    comparison = Comparison("depth", "native", False, math.nan, 0.5, "it differs", "node compiled")
    assert comparison.to_dict() == {
        "policy": "depth",
        "kernel": "native",
        "share": False,
        "outputs": None,
        "gradients": 0.5,
        "differs": "it differs",
        "cells": "node compiled",
        "equal": False,
    }
