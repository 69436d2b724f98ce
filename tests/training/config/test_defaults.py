"""Files of config groups choose what fits them, unless the user or an experiment chooses."""

from __future__ import annotations

import pytest
import yaml

from graphfold.training.config.compose import compose
from graphfold.training.config.folder import config_folder


@pytest.mark.parametrize(
    ("words", "model", "callbacks"),
    [
        (["data=esol"], "gcn", {"average"}),
        (["data=listops_generated"], "binary_tree_lstm", {"early_stopping"}),
        (["data=esol", "model=gcn", "callbacks=default"], "gcn", {"early_stopping"}),
        (["data=esol", "model=neighbours"], "neighbours", {"early_stopping"}),
        (["data=smiles", "data.path=f.csv", "data.target_columns=[y]"], "dmpnn", {"average"}),
        (["experiment=bbbp_fingerprint"], "fingerprint", {"early_stopping"}),
        (["experiment=sick_best"], "aligned_tree_lstm", {"average"}),
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
