"""Overrides become one config: groups, keys, sweeps, and what a command adds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from graphfold.errors import ConfigError
from graphfold.training.config.compose import compose, split_sweep
from graphfold.training.config.overrides import parse_settings


def test_nothing_given_is_the_default_experiment() -> None:
    composed = compose([])
    assert composed.config["name"] == "listops_tree_lstm"
    assert composed.config["data"]["corpus"] == "listops_generated"
    assert composed.folder.parts[:2] == ("runs", "listops_tree_lstm")


@pytest.mark.parametrize("override", ["data=chembl", "model=tree_gru", "experiment=null"])
def test_a_choice_turns_the_default_experiment_off(override: str) -> None:
    assert compose([override]).config["trainer"]["max_epochs"] == 20


def test_own_molecules_with_an_experiment() -> None:
    columns = "data.target_columns=['a, b',c]"
    composed = compose(["experiment=esol_gcn", "data=smiles", "data.path=f.csv", columns])
    assert composed.config["data"]["target_columns"] == ["a, b", "c"]
    assert composed.config["data"]["adapter"] == "smiles"
    assert "corpus" not in composed.config["data"]


def test_data_choose_a_model_and_a_choice_of_ones_own_wins() -> None:
    assert "GCN" in str(compose(["data=esol"]).config["model"]["cells"])
    assert "GINE" in str(compose(["data=esol", "model=gin"]).config["model"]["cells"])
    assert "Fingerprint" in str(compose(["experiment=bbbp_fingerprint"]).config["model"]["cells"])


def test_paths_become_absolute() -> None:
    data = compose(["data=esol", "data.root=here", "data.cache_dir='~/c'"]).config["data"]
    assert data["root"] == os.path.abspath("here")
    assert data["cache_dir"] == str(Path.home() / "c")
    files = compose(["data=conllu", "data.path={train:a,val:b}"]).config["data"]["path"]
    assert files == {"train": os.path.abspath("a"), "val": os.path.abspath("b")}


def test_run_folder_is_hydras() -> None:
    assert compose(["hydra.run.dir=some/where"]).folder == Path("some/where")
    assert compose(["hydra.sweep.dir=some/where"]).sweep_folder == Path("some/where")


def test_an_inner_cell_can_be_overridden() -> None:
    composed = compose(["model.cells.0._leaf_.hidden_size=7"])
    assert composed.config["model"]["cells"][0]["_leaf_"]["hidden_size"] == 7


def test_sweep_is_the_product_in_order() -> None:
    jobs = split_sweep(["seed=1,2", "model=tree_gru,tree_rnn", "name=x"])
    assert jobs == [
        ["seed=1", "model=tree_gru", "name=x"],
        ["seed=1", "model=tree_rnn", "name=x"],
        ["seed=2", "model=tree_gru", "name=x"],
        ["seed=2", "model=tree_rnn", "name=x"],
    ]


def test_settings_are_read_as_hydra_reads_values() -> None:
    words = ["smiles_column='a, b'", "data.target_columns=[x,'y z']", "binarize=true", "n=3"]
    assert parse_settings(words) == {
        "smiles_column": "a, b",
        "target_columns": ["x", "y z"],
        "binarize": True,
        "n": 3,
    }


@pytest.mark.parametrize("word", ["+a=1", "~a", "a=1,2", "a", "=3"])
def test_settings_that_are_none(word: str) -> None:
    with pytest.raises(ConfigError, match="Write KEY=VALUE"):
        parse_settings([word])


def test_an_interpolation_to_nowhere_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"seed: Interpolation key 'nowhere' not found"):
        compose(["seed=${nowhere}"])


def test_what_a_model_would_like_of_the_data_is_set_unless_it_is_given() -> None:
    def descriptors(*overrides: str) -> Any:
        return compose(list(overrides)).config["data"]["descriptors"]

    forest = ("data=esol", "model=forest")
    assert descriptors(*forest) == ["morgan"]
    assert descriptors(*forest, "data.descriptors=[rdkit2d]") == ["rdkit2d"]
    assert descriptors("experiment=moleculeace_forest") == ["rdkit2d", "morgan"]
