"""Overrides become one config: groups, keys, sweeps, and what a command adds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from graphfold.errors import ConfigError
from graphfold.training.config.build_model import own_options
from graphfold.training.config.compose import compose
from graphfold.training.config.folder import config_folder
from graphfold.training.config.overrides import parse_settings, suggest_set_flags
from graphfold.training.config.wrong_overrides import suggest_key


def test_nothing_given_is_the_default_experiment() -> None:
    composed = compose([])
    assert composed.config.mapping["name"] == "listops_tree_lstm"
    assert composed.config.data["corpus"] == "listops_generated"
    assert composed.folder.parts[:2] == ("runs", "listops_tree_lstm")


@pytest.mark.parametrize("override", ["data=chembl", "model=tree_gru", "experiment=null"])
def test_a_choice_turns_the_default_experiment_off(override: str) -> None:
    assert compose([override]).config.mapping["trainer"]["max_epochs"] == 20


def test_own_molecules_with_an_experiment() -> None:
    columns = "data.target_columns=['a, b',c]"
    composed = compose(["experiment=esol_gcn", "data=smiles", "data.path=f.csv", columns])
    assert composed.config.data["target_columns"] == ["a, b", "c"]
    assert composed.config.data["adapter"] == "smiles"
    assert "corpus" not in composed.config.data


def test_data_choose_a_model_and_a_choice_of_ones_own_wins() -> None:
    assert "GCN" in str(compose(["data=esol"]).config.model["cells"])
    assert "GINE" in str(compose(["data=esol", "model=gin"]).config.model["cells"])
    assert "Fingerprint" in str(compose(["experiment=bbbp_fingerprint"]).config.model["cells"])


def test_paths_become_absolute() -> None:
    data = compose(["data=esol", "data.root=here", "data.cache_dir='~/c'"]).config.data
    assert data["root"] == os.path.abspath("here")
    assert data["cache_dir"] == str(Path.home() / "c")
    files = compose(["data=conllu", "data.path={train:a,val:b}"]).config.data["path"]
    assert files == {"train": os.path.abspath("a"), "val": os.path.abspath("b")}


def test_run_folder_is_hydras() -> None:
    assert compose(["hydra.run.dir=some/where"]).folder == Path("some/where")


def test_an_inner_cell_can_be_overridden() -> None:
    composed = compose(["model.cells.0._leaf_.hidden_size=7"])
    assert composed.config.model["cells"][0]["_leaf_"]["hidden_size"] == 7


@pytest.mark.parametrize(
    ("model", "option"), [("gcn", "backend=scatter"), ("block_tree_lstm", "backend=torch")]
)
def test_options_of_a_model_s_class_need_no_sign(model: str, option: str) -> None:
    name, _, value = option.partition("=")
    assert compose([f"model={model}", f"model.{option}"]).config.model[name] == value


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["model.bakend=torch"], r"no key 'model.bakend' .*Did you mean 'model.backend'\?"),
        (["model.schema=x"], r"no key 'model.schema'"),  # the data give it
        (["model.head.bakend=x"], r"no key 'model.head.bakend'"),
    ],
)
def test_what_is_no_option_of_a_model_is_refused(words: list[str], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        compose(words)


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


def test_depth_of_blocks() -> None:
    config = compose(["data=esol", "model=block_neighbourhood", "model.depth=1"]).config
    assert config.model["root"]["radius"] == 1


def test_every_model_with_rounds_over_bonds_has_a_depth() -> None:
    """So that `model.depth` and `tune=molecules` fit all of them."""
    for path in sorted((config_folder() / "model").glob("*.yaml")):
        config = OmegaConf.to_container(OmegaConf.load(path))
        assert isinstance(config, dict)
        relations = {item.get("relation") for item in config.get("passes", ())}
        if relations & {"bond", "continues", "weave"}:
            assert "depth" in config, path.name


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.depth=1", r"rounds: the depth is 1; this model needs a whole number from 2 on\."),
        ("model.depth=x", r"rounds: the depth is 'x'; this model needs a whole number from 2 on"),
        ("model.dept=3", r"no key 'model.dept' in the config\. Did you mean 'model.depth'\?"),
    ],
)
def test_what_is_no_depth(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(["data=esol", "model=dmpnn", override])


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("model.depth", ""),  # nothing but the section is like model.dropout
        ("model.hiden_size", " Did you mean 'model.hidden_size'?"),
        ("modl.dropout", " Did you mean 'model.dropout'?"),
        ("optimizer.dropout", " Did you mean 'model.dropout'?"),
        ("model.droput", " Did you mean 'model.dropout'?"),
        ("data.pth", " Did you mean 'data.path'?"),
        ("trainer.max_epoch", " Did you mean 'trainer.max_epochs'?"),
        ("sed", " Did you mean 'seed'?"),
        ("model.cells.0.activation", ""),
    ],
)
def test_a_key_is_suggested_that_is_spelt_alike(key: str, hint: str) -> None:
    keys = ["seed", "model.dropout", "model.hidden_size", "data.path", "trainer.max_epochs"]
    assert suggest_key(key, keys) == hint


def test_a_key_that_parts_share_is_an_argument_of_a_class_that_takes_it() -> None:
    shared = {"depth": 3, "hidden_size": 4, "dropout": 0.1}
    model = {"_target_": "graphfold.layers.GraphModel", "run": "auto"}
    assert own_options({**model, **shared}) == model
    cell = {"_target_": "graphfold.layers.BagCell", "hidden_size": 4}
    assert own_options({**cell, **shared}) == {**cell, "hidden_size": 4}


def test_a_choice_of_callbacks_is_that_of_the_user() -> None:
    averaged = compose(["data=esol", "model=gcn"]).config
    plain = compose(["data=esol", "model=gcn", "callbacks=default"]).config
    assert plain.callbacks == {}
    assert plain.model == averaged.model


@pytest.mark.parametrize("names", ["average,early_stopping", "early_stopping,average"])
def test_files_of_callbacks_are_joined(names: str) -> None:
    found = compose(["data=esol", f"callbacks=[{names}]"]).config.callbacks
    each = (compose(["data=esol", f"callbacks={name}"]).config.callbacks for name in ALONE)
    assert found == {name: part[name] for name, part in zip(ALONE, each, strict=True)}


ALONE = ("average", "early_stopping")


def test_a_file_to_join_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"no callbacks 'early_stoping'. Did you mean 'early_"):
        compose(["data=esol", "callbacks=[average,early_stoping]"])


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("smiles_column", "Add --set smiles_column=VALUE."),
        ("target_columns", "Rename the column in the file, for the model has its name."),
    ],
)
def test_a_setting_that_a_model_cannot_change_is_no_remedy(option: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as error, suggest_set_flags():
        raise ConfigError(f"no column 't'. Set data.{option}.")
    assert error.value.message == f"no column 't'. {remedy}"
