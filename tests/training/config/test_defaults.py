"""What fits together by defaults.yaml, and that groups of the config choose nothing backwards."""

from __future__ import annotations

import pytest
import yaml

from graphfold.training.config.compose import compose
from graphfold.training.config.folder import config_folder

TABLE = yaml.safe_load((config_folder() / "defaults.yaml").read_text(encoding="utf-8"))


def names(group: str) -> set[str]:
    return {path.stem for path in (config_folder() / group).glob("[!_]*.yaml")}


def test_the_table_names_every_data_and_no_unknown_option() -> None:
    assert set(TABLE["model"]) | {"listops_generated"} == names("data")
    assert set(TABLE["model"].values()) <= names("model")
    assert set(TABLE["callbacks"]) <= names("model")
    assert set(TABLE["callbacks"].values()) <= names("callbacks")


@pytest.mark.parametrize("group", ["data", "model"])
def test_no_data_and_no_model_chooses_an_option_of_another_group(group: str) -> None:
    for path in (config_folder() / group).glob("*.yaml"):
        assert "override" not in str(yaml.safe_load(path.read_text(encoding="utf-8"))), path


@pytest.mark.parametrize(
    ("words", "model", "callbacks"),
    [
        (["data=esol"], "gcn", {"average"}),
        (["data=esol", "model=gcn", "callbacks=default"], "gcn", {"early_stopping"}),
        (["data=esol", "model=neighbours"], "neighbours", {"early_stopping"}),
        (["data=smiles", "data.path=f.csv", "data.target_columns=[y]"], "dmpnn", {"average"}),
        (["experiment=bbbp_fingerprint"], "fingerprint", {"early_stopping"}),
        (["model=dmpnn", "data=sst"], "dmpnn", {"average"}),
        (["data=esol", "callbacks=[average,early_stopping]"], "gcn", {"average", "early_stopping"}),
    ],
)
def test_what_is_not_chosen_is_what_fits(words: list[str], model: str, callbacks: set[str]) -> None:
    config = compose([*words, "hydra.run.dir=x"]).config
    assert config.name.endswith(f"_{model}") or config.name == words[0].partition("=")[2]
    chosen = yaml.safe_load((config_folder() / f"model/{model}.yaml").read_text(encoding="utf-8"))
    assert config.model["_target_"] == chosen["_target_"]
    assert set(config.mapping["callbacks"]) == callbacks
