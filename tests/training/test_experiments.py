"""Every config composes, and every experiment trains, on a few records of its corpus's format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
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
OPTIONS = [
    f"{group}={path.stem}"
    for group in ("optimizer", "lr_scheduler", "trainer", "callbacks", "logger")
    for path in sorted((config_folder() / group).glob("*.yaml"))
]
DATA = sorted(p.stem for p in (config_folder() / "data").glob("*.yaml") if p.stem != "_base")

#: What each kind of data cannot do without.
NEEDED = {
    "smiles": ["data.path=f.csv", "data.target_columns=[a]"],
    "brackets": ["data.path=f.txt", "data.num_classes=5"],
    "conllu": ["data.path={train:f,val:g,test:h}"],
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
        more.append("model.fuse=true")  # an error unless all cells are compiled
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
        loaded = load_experiment([*own, f"data.root={data_root}", "model.fuse=true"])
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
    # No files are there.
    place = "graphfold.training.config.check_parts._read_first_records"
    monkeypatch.setattr(place, lambda _: None)
    composed = compose([f"model={model}"])
    own = composed.config.mapping["model"]
    needed = own.get("needs_data")  # which list operations do not have
    if needed:
        data = next((DATA_OF[option] for option in needed if option in DATA_OF), "esol")
        composed = compose([f"model={model}", f"data={data}"])
    check_parts(composed.config)


@pytest.mark.parametrize("option", OPTIONS)
def test_option_composes(option: str) -> None:
    composed = compose([option])
    check_parts(composed.config)
