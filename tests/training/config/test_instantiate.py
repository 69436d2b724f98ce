"""Objects from config."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from training.tiny_runs import bracket_tree, write_corpora, write_molecules

from graphfold.errors import ConfigError
from graphfold.layers import GCNCell
from graphfold.training.config.build_model import decide
from graphfold.training.config.compose import compose
from graphfold.training.config.instantiate import check_targets, instantiate
from graphfold.training.process.process import member_seed, seed_generators
from graphfold.training.run.initial_weights import make_model


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
    assert "a.lr is 'fast', but it must be a number" in faults
    assert "a (Adam) has no option 'weight_decai'. Did you mean 'weight_decay'?" in faults
    assert "b[0]._target_: torch.nn has no 'Nothing'" in faults
    assert "c.hidden_size is 1.5, but it must be a whole number" in faults


@pytest.mark.parametrize(
    "words",
    [
        ["data=smiles", "model=gcn", "callbacks=[average,early_stopping]"],
        ["data=smiles", "model=dmpnn", "lr_scheduler=cosine"],
        ["data=brackets", "model=binary_tree_lstm", "optimizer=sgd"],
        ["experiment=sst_blocks", "data.root={folder}/corpora"],
    ],
)
def test_hydras_own_instantiate_builds_the_same_parts(words: list[str], tmp_path: Path) -> None:
    if "data=smiles" in words:
        path = write_molecules(tmp_path / "m.csv")
        words = [*words, f"data.path={path}", "data.target_columns=[c]"]
    elif "data=brackets" in words:
        trees = "".join(f"{bracket_tree(random.Random(i))}\n" for i in range(30))
        (tmp_path / "trees.txt").write_text(trees)
        words = [*words, f"data.path={tmp_path}/trees.txt", "data.num_classes=5"]
    else:
        write_corpora(tmp_path / "corpora")
        words = [word.format(folder=tmp_path) for word in words]
    config = compose([*words, f"data.cache_dir={tmp_path}/cache"]).config
    data = hydra.utils.instantiate(config.data, _target_="graphfold.datasets.DataModule")
    data.prepare()
    config = decide(config, data)
    model = make_model(config, data)

    seed_generators(member_seed(config.seed, 0))
    parts = OmegaConf.create(dict(config.mapping))
    make = hydra.utils.instantiate(parts.model, _partial_=True, _convert_="all")
    same = make(schema=data.spec.schema, scalers=data.spec.scalers or None)
    assert type(same) is type(model)
    assert str(same) == str(model)
    assert same.state_dict().keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(same.state_dict()[name], value), name
    for group in ("optimizer", "lr_scheduler", "trainer", "callbacks", "logger"):
        theirs, ours = hydra.utils.instantiate(parts[group]), instantiate(config.mapping[group])
        assert describe(theirs) == describe(ours)


def describe(part: Any) -> Any:
    """An object by its class and attributes, or what it calls with which arguments."""
    if isinstance(part, partial):
        return part.func, part.args, part.keywords
    if isinstance(part, dict | DictConfig):
        return {key: describe(value) for key, value in part.items()}
    return type(part), getattr(part, "__dict__", part)


def test_a_conversion_that_hydra_is_asked_for_is_what_is_done_anyway() -> None:
    node = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 3}
    assert check_targets({**node, "_convert_": "all"}, "x") == []
    assert instantiate({**node, "_convert_": "all"}, "x").weight.shape == (3, 2)


def test_a_cell_of_ones_own_is_built_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "MyCell", GCNCell, raising=False)
    assert isinstance(instantiate({"_target_": "os.MyCell", "hidden_size": 3}), GCNCell)
