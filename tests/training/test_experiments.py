"""Every config composes, and every experiment trains, on a few records of its corpus's format."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from training.tiny_runs import read_json, train

from benchmarks.experiment import load_experiment
from graphfold.batching.native.library import why_missing
from graphfold.errors import DataError
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.folder import config_folder

#: Experiments that need vectors or an encoder of the user's: those are in test_words.py.
WITH_WORDS = {"sst_glove"}
EXPERIMENTS = sorted(
    {path.stem for path in (config_folder() / "experiment").glob("*.yaml")} - WITH_WORDS
)
MODELS = sorted(path.stem for path in (config_folder() / "model").glob("*.yaml"))
#: The files of the small groups, those of one row for one config.
OPTIONS = [
    [word for word in words if word]
    for words in zip_longest(
        *(
            [f"{group}={path.stem}" for path in sorted((config_folder() / group).glob("*.yaml"))]
            for group in ("optimizer", "lr_scheduler", "trainer", "callbacks", "logger")
        )
    )
]
DATA = sorted(p.stem for p in (config_folder() / "data").glob("*.yaml") if p.stem != "_base")

#: What each kind of data cannot do without.
NEEDED = {
    "smiles": ["data.path=f.csv", "data.target_columns=[a]"],
    "reactions": ["data.path=f.csv", "data.target_columns=[a]"],
    "brackets": ["data.path=f.txt", "data.num_classes=5"],
    "conllu": ["data.path={train:f,val:g,test:h}"],
    "graphs": ["data.path=f"],
    "listops": ["data.path=f"],
    "pairs": ["data.path=f"],
    "bace": ["data.path=f.csv"],
    "clintox": ["data.path=f.csv"],
    "sider": ["data.path=f.csv"],
    "table": ["data.path=f.csv", "data.records=brackets", "data.target_columns=[a]"],
}

#: experiment -> a metric that it must report on test.
METRICS = {
    "bbbp_fingerprint": "roc_auc",
    "chembl_gcn": "rmse",
    "esol_blocks": "rmse",
    "esol_gcn": "rmse",
    "lipophilicity_best": "rmse",
    "lipophilicity_dmpnn": "rmse",
    "listops_best": "accuracy",
    "listops_tree_lstm": "accuracy",
    "moleculeace_dmpnn": "rmse",
    "ptb_labels": "node_accuracy",
    "sick_best": "pearson",
    "sick_entailment": "accuracy",
    "sick_tree_lstm": "pearson",
    "sst_best": "root_binary_accuracy",
    "sst_blocks": "root_accuracy",
    "sst_tree_lstm": "root_binary_accuracy",
    "sst_tree_rnn": "node_accuracy",
    "tox21_best": "roc_auc",
    "ud_mask": "node_accuracy",
    "ud_relations": "node_accuracy",
    "ud_upos": "node_accuracy",
}
SMALL = ["trainer.max_epochs=1", "data.batch_size=16", "model.hidden_size=8"]
LISTOPS = ["data.train_size=30", "data.val_size=8", "data.test_size=8", "data.max_length=20"]
PARTS = ("train", "val", "test")
MORE = {
    "listops_best": ["data.train_size=30", "data.val_size=8", "+data.pool=50"],
    "listops_tree_lstm": [*LISTOPS, "model.encoder.size=8"],
    "chembl_gcn": ["data.batch_size=256"],
}

#: An option that a model needs of the data -> data that have it.
DATA_OF = {"sequence": "sst", "position": "ud_english_ewt", "across": "sick"}


#: Those that train with every change, one of each kind; of the others a tenth does.
ALWAYS = (
    "listops_tree_lstm",
    "sst_tree_lstm",
    "sick_entailment",
    "lipophilicity_dmpnn",
)


@pytest.mark.parametrize(
    "experiment",
    [pytest.param(e, marks=[] if e in ALWAYS else [pytest.mark.slow]) for e in EXPERIMENTS],
)
def test_experiment_trains(
    experiment: str, corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = f"data.root={corpora}"
    more = [*SMALL, *MORE.get(experiment, [])]
    if why_missing(torch.float32) is None:
        more.append("model.run=compiled")  # an error unless all cells are compiled
    folder = train(tmp_path / "run", f"experiment={experiment}", root, *more)
    metrics = read_json(folder / "metrics.json")
    assert f"test/{METRICS[experiment]}" in metrics
    assert {key.split("/")[0] for key in metrics} == {"val", "test"}
    out, err = capsys.readouterr()
    assert re.findall(r"^cells: .* compiled \(native\)$", out, flags=re.MULTILINE)
    assert "is not compiled" not in err


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_on_its_corpus_has_compiled_cells(
    experiment: str, data_root: Path, tmp_path: Path
) -> None:
    own = [f"experiment={experiment}", f"data.cache_dir={tmp_path}", "data.batch_size=25"]
    try:
        loaded = load_experiment([*own, f"data.root={data_root}", "model.run=compiled"])
    except DataError as error:
        pytest.skip(str(error))
    (batch,) = loaded.batches(1)
    loaded.model.train()
    loaded.step(batch)  # warnings are errors
    assert set(loaded.model.network.execution.values()) == {"compiled (native)"}


@pytest.mark.parametrize("data", DATA)
def test_data_composes_with_the_model_that_it_chooses(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No files are there.
    place = "graphfold.training.config.check_parts._read_first_records"
    monkeypatch.setattr(place, lambda _: None)
    composed = compose([f"data={data}", *NEEDED.get(data, [])])
    check_parts(composed.config)


@pytest.mark.parametrize("model", MODELS)
def test_model_composes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its depth is the number of rounds over bonds; with batch norm it has averaged weights.

    Without them, validation error rises up to threefold from one epoch to the next, and falls.
    """
    # No files are there.
    place = "graphfold.training.config.check_parts._read_first_records"
    monkeypatch.setattr(place, lambda _: None)
    path, words = config_folder() / "model" / f"{model}.yaml", [f"model={model}"]
    stored = OmegaConf.load(path)
    needed = stored.get("needs_data")
    if needed:  # list operations do not have it
        words.append(f"data={next((DATA_OF[name] for name in needed if name in DATA_OF), 'esol')}")
    has_rounds = "depth" in stored and "passes" in stored
    config = compose([*words, "model.depth=5"] if has_rounds else words).config
    check_parts(config)
    if has_rounds:
        assert sum(item.get("rounds", 0) for item in config.model["passes"]) == 5
    if "norm: batch" in path.read_text():
        assert config.callbacks["average"]["decay"] == 0.999


def test_which_models_have_batch_norm() -> None:
    found = {
        p.stem for p in (config_folder() / "model").glob("*.yaml") if "norm: batch" in p.read_text()
    }
    assert {"gcn", "gin", "gine", "gat", "gatv2", "pna", "fingerprint", "fragments"} <= found


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_compose(options: list[str]) -> None:
    check_parts(compose(options).config)
