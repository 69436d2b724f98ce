"""graphfold compare on runs, from their folders to table, JSON and plot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training.tiny_runs import read_json, run, write_molecules

from graphfold.errors import CheckpointError, ConfigError
from graphfold.studies.compare import models_of, read_results
from graphfold.studies.compare_statistics import compare_means


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on three folds: runs 0 to 2 and 3 to 5."""
    folder = tmp_path_factory.mktemp("compare")
    table = write_molecules(folder / "m.csv", 60)
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "trainer.max_epochs=1"]
    words += ["data.split=kfold", "data.num_folds=3", "model.hidden_size=4,12", "logger=none"]
    words += ["model.fuse=false"]
    places = [f"data.cache_dir={folder}/cache", f"hydra.sweep.dir={folder}/s"]
    assert run("train", "--all-folds", *words, *places) == 0
    return folder / "s"


def test_a_sweep_is_compared_fold_by_fold(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("compare", sweep, "--json", tmp_path / "c.json") == 0
    text = capsys.readouterr().out
    facts = read_json(tmp_path / "c.json")
    values = np.array(
        [
            [read_json(sweep / str(3 * m + f) / "metrics.json")["test/rmse"] for m in range(2)]
            for f in range(3)
        ]
    )
    wanted = compare_means(values, repeated=True)
    assert wanted.anova is not None
    assert facts["anova"] == {"f": wanted.anova.statistic, "degrees": [1, 2], "p": wanted.anova.p}
    assert facts["pairs"][0]["p"] == wanted.pairs[0].p
    labels = ["smiles_dmpnn model.hidden_size=4", "smiles_dmpnn model.hidden_size=12"]
    assert facts["best"] == labels[int(values.mean(0).argmin())]
    means = {model["model"]: model["mean"] for model in facts["models"]}
    assert means == pytest.approx(dict(zip(labels, values.mean(0), strict=True)))
    assert "deviation" in text
    assert facts["sentence"] in text
    assert "repeated-measures ANOVA, Tukey HSD; F(1, 2) = " in facts["sentence"]
    assert "<svg" in (tmp_path / "c.svg").read_text()
    assert run("compare", sweep / "0", sweep / "3") == 0
    assert "one run of each model: that is too little for a test" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("04", [], "has none on the same split as .*4. Give every model a run on each split"),
        ("01", [], "the 2 runs are of one model: their configs differ in seed and fold alone"),
        ("00", [], "0 is named twice"),
        ("03", ["--metric", "rsme"], r"there is no 'test/rsme'. Did you mean 'test/rmse'"),
        ("03", ["--metric", "coverage"], "test/coverage has no best value"),
        ("03", ["--plot", "c.txt"], "c.txt: a plot ends in .svg, .png, .pdf"),
    ],
)
def test_runs_that_cannot_be_compared(
    names: str,
    options: list[str],
    message: str,
    sweep: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run("compare", *(sweep / name for name in names), *options) == 2
    assert re.search(message, capsys.readouterr().err)


def test_other_data_targets_and_splits_are_refused(sweep: Path) -> None:
    first, second = read_results([sweep / "0", sweep / "3"])
    file = first.split.files[0]._replace(content="0" * 64)
    other = replace(second, split=replace(second.split, files=(file,)))
    with pytest.raises(ConfigError, match=r"their data differ \(m\.csv with \d+ records, sha256"):
        models_of([first, other])
    other = replace(second, split=replace(second.split, method="random"))
    with pytest.raises(ConfigError, match=r"data\.split is kfold in one, random in the other"):
        models_of([first, other])
    with pytest.raises(ConfigError, match="one predicts c, the other active"):
        models_of([first, replace(second, targets=("active",))])
    undefined = replace(second, metrics={**second.metrics, "test/rmse": None})
    assert models_of([first, undefined])[1].runs == (undefined,)


def test_runs_on_one_split_are_paired_in_the_order_of_their_seeds(sweep: Path) -> None:
    first, second = read_results([sweep / "0", sweep / "3"])
    runs = [
        replace(r, config=r.config.changed({"seed": s})) for r in (first, second) for s in (5, 2)
    ]
    models = models_of(runs)
    assert [[run.config.seed for run in model.runs] for model in models] == [[2, 5], [2, 5]]
    assert len({run.split_key for model in models for run in model.runs}) == 1
    moved = replace(first.split, test=torch.flip(first.split.test, [0])[1:])
    assert replace(first, split=moved).split_key != first.split_key


def test_folders_that_hold_no_finished_run(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a run folder, which has a config.yaml, nor"):
        read_results([tmp_path])
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.yaml").write_text((sweep / "0" / "config.yaml").read_text())
    with pytest.raises(CheckpointError, match=r"its training did not finish\. Finish it"):
        read_results([half])
