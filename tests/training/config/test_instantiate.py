"""Objects from config, and what a checkpoint may not name."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from graphfold.errors import CheckpointError, ConfigError
from graphfold.layers import GCNCell
from graphfold.training.config.instantiate import (
    check_targets,
    instantiate,
    refuse_unregistered,
    third_party,
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
        ("torch.nn.Liner", r"x\._target_: no class 'Liner' in torch\.nn\. Did you mean 'Linear'"),
        ("torch.nnn.Linear", r"cannot import 'torch\.nnn'"),
        ("os.getcwd", r"no class 'getcwd' in os"),
        ("Linear", r"cannot import ''"),
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
    assert "Did you mean 'weight_decay'?" in faults
    assert "b[0]._target_: no class 'Nothing'" in faults
    assert "c.hidden_size is 1.5, but it takes a whole number" in faults


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.load",
        "torch.nn.functional.relu",
        "torch.hub.load",
        "torch.nn.modules.module.functools.partial",
        "graphfold.training.loop.train.train",
        "graphfold.files.whole_file",
        "graphfold.blocks.compile",
        "graphfold.blocks.models.tree_lstm.torch.nn.Linear",
        "graphfold.blocks.models.tree_lstm._with_rows",
        "graphfold.layers.graph_model.nn.Linear",
        "graphfold.datasets.storage.reading.ProcessPoolExecutor",
        "graphfold_evil.Cell",
        "functools.partial",
        "${oc.env:HOME}",
        "",
        3,
    ],
)
def test_a_checkpoint_may_not_name(target: Any) -> None:
    node = {"cells": [{"word": {"_target_": target, "args": "rm -rf /"}}]}
    with pytest.raises(CheckpointError, match=r"model\.cells\[0\]\.word names .*--trust"):
        refuse_unregistered(node, (), "model")


@pytest.mark.parametrize(
    "target",
    [
        "graphfold.layers.GCNCell",
        "graphfold.layers.molecules.gcn.GCNCell",
        "graphfold.batching.Rounds",
        "graphfold.blocks.BlockModel",
        "graphfold.blocks.models.tree_lstm",
        "torch.nn.Linear",
        "torch.optim.Adam",
        "torch.optim.lr_scheduler.StepLR",
    ],
)
def test_a_checkpoint_may_name(target: str) -> None:
    refuse_unregistered({"_target_": target}, ())
    assert third_party({"_target_": target}) == []


def test_a_trusted_package_may_be_named() -> None:
    node = {"_target_": "my_cells.Cell"}
    with pytest.raises(CheckpointError, match=r"If you trust the package 'my_cells', add --trust"):
        refuse_unregistered(node, ("my_cell",))
    refuse_unregistered(node, ("my_cells",))
    assert third_party(node) == ["my_cells"]


def test_a_cell_of_ones_own_is_built_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "MyCell", GCNCell, raising=False)
    assert isinstance(instantiate({"_target_": "os.MyCell", "hidden_size": 3}), GCNCell)
