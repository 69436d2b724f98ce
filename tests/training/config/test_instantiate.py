"""Objects from config."""

from __future__ import annotations

import os

import pytest
import torch

from graphfold.errors import ConfigError
from graphfold.layers import GCNCell
from graphfold.training.config.instantiate import (
    check_targets,
    instantiate,
)


def test_nested_targets_are_built_innermost_first() -> None:
    node = {
        "_target_": "torch.nn.Sequential",
        "_partial_": True,
        "parts": [{"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 3}],
    }
    partial = instantiate(node)
    assert partial.func is torch.nn.Sequential
    assert partial.keywords["parts"][0].weight.shape == (3, 2)


def test_a_partial_waits_for_arguments() -> None:
    make = instantiate({"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5})
    optimizer = make([torch.nn.Parameter(torch.zeros(1))])
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_string_that_looks_like_an_interpolation_stays_a_string() -> None:
    assert instantiate({"a": "${oc.env:HOME}"}) == {"a": "${oc.env:HOME}"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("torch.nn.Liner", r"x\._target_: torch\.nn has no 'Liner'\. Did you mean 'Linear'\?"),
        ("torch.nnn.Linear", r"x\._target_: there is no module 'torch\.nnn'"),
        ("os.getcwd", r"'os\.getcwd' is a builtin_function_or_method\. Name a class, or a Python"),
        ("Linear", r"'Linear' is no dotted path\. Give one as package\.module\.name"),
        ("torch.nn:Linear", r"'torch\.nn:Linear' has a colon\. Write package\.module\.name"),
    ],
)
def test_no_such_class(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        instantiate({"_target_": target}, "x")


def test_refused_arguments_are_a_config_error() -> None:
    node = {"_target_": "torch.nn.Linear", "in_features": 2}
    with pytest.raises(ConfigError, match=r"x: Linear refuses its arguments: .*out_features"):
        instantiate(node, "x")


def test_faults_of_all_targets_are_found_without_building() -> None:
    node = {
        "a": {"_target_": "torch.optim.Adam", "lr": "fast", "weight_decai": 0.1},
        "b": [{"_target_": "torch.nn.Nothing"}],
        "c": {"_target_": "graphfold.layers.GCNCell", "hidden_size": 1.5},
    }
    faults = "\n".join(check_targets(node))
    assert "a.lr is 'fast', but it takes a number" in faults
    assert "a (Adam) has no option 'weight_decai'. Did you mean 'weight_decay'?" in faults
    assert "b[0]._target_: torch.nn has no 'Nothing'" in faults
    assert "c.hidden_size is 1.5, but it takes a whole number" in faults


def test_a_cell_of_ones_own_is_built_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "MyCell", GCNCell, raising=False)
    assert isinstance(instantiate({"_target_": "os.MyCell", "hidden_size": 3}), GCNCell)
