"""What Hydra's own programs have is done here, or refused in words; nothing is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from training.tiny_runs import listops, read_json, run, train

from graphfold.errors import ConfigError
from graphfold.training.config.compose import compose


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra/launcher=joblb", "-m", "seed=1,2"], "Did you mean 'joblib'?"),
        (["--package", "optimizer"], "--package chooses a part of what --cfg shows"),
        (["--cfg", "job", "--package", "nowhere"], "package 'nowhere' not found"),
        (["--resolve"], "--resolve fills in what --cfg shows. Add --cfg job."),
        (["--run", "-m"], "Give one of them"),
        (["-m", "optimizer.lr=interval(0,1)"], "choose a sweeper of Hydra that does"),
        (["--experimental-rerun", "x"], "graphfold train resume=RUN continues a run"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "word", ["hydra/launcher=basic", "hydra.verbose=true", "hydra.job.chdir=true"]
)
def test_outside_of_train_what_has_no_effect_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="has no effect: only graphfold train is started by"):
        compose([word])


@pytest.mark.parametrize(
    ("launcher", "first_id"), [("basic", "0"), ("joblib", "train_0"), ("submitit_local", None)]
)
def test_a_launcher_runs_each_combination(
    launcher: str, first_id: str | None, tmp_path: Path
) -> None:
    words = [*listops("logger=none", f"data.cache_dir={tmp_path}/cache"), "seed=1,2"]
    chosen = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path}/s"]
    name = [] if first_id is None else ["+name_of_job=${hydra:job.id}"]
    assert run("train", "-m", *words, *chosen, *name) == 0
    configs = [yaml.safe_load((tmp_path / f"s/{n}/config.yaml").read_text()) for n in (0, 1)]
    assert [config["seed"] for config in configs] == [1, 2]
    if first_id is not None:
        assert str(configs[0]["name_of_job"]) == first_id
    alone = train(tmp_path / "alone", *listops("seed=2"))
    assert read_json(tmp_path / "s/1/metrics.json") == read_json(alone / "metrics.json")
    rows = (tmp_path / "s/sweep.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["run", "0", "1", "mean", "deviation"]


def test_a_config_of_ones_own_and_what_hydra_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [train, _self_]\nseed: 7\n")
    own = ["-cd", str(tmp_path), "-cn", "mine", "data=esol"]
    assert run("train", *own, "--cfg", "job") == 0
    assert yaml.safe_load(capsys.readouterr().out)["seed"] == 7
    assert run("train", *own, "--cfg", "job", "-p", "optimizer") == 0
    assert yaml.safe_load(capsys.readouterr().out)["_target_"] == "torch.optim.Adam"
    assert run("train", *own, "--info", "defaults-tree") == 0
    assert "model: gcn" in capsys.readouterr().out
    assert run("train", "--help") == 0
    assert "lr_scheduler: constant, cosine" in capsys.readouterr().out


def test_tune_refuses_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", "--config-name", "mine") == 2
    assert "choose experiment=NAME" in capsys.readouterr().err


def test_the_configs_of_a_sweep_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "-m", "seed=3,4", "optimizer.lr=0.1,0.2", "--cfg", "job") == 0
    text = capsys.readouterr().out
    shown = list(yaml.safe_load_all(text))
    assert [(job["seed"], job["optimizer"]["lr"]) for job in shown] == [
        (3, 0.1),
        (3, 0.2),
        (4, 0.1),
        (4, 0.2),
    ]
    assert "# seed=3 optimizer.lr=0.1\n" in text
    folds = ["data=smiles", "data.path=x.csv", "data.split=kfold", "data.num_folds=3"]
    assert run("train", "--all-folds", *folds, "data.target_columns=[c]", "--cfg", "job") == 0
    jobs = yaml.safe_load_all(capsys.readouterr().out)
    assert [job["data"]["fold"] for job in jobs] == [0, 1, 2]


def test_one_config_is_shown_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "-m", "seed=3", "--cfg", "job", "--resolve") == 0
    (shown,) = yaml.safe_load_all(capsys.readouterr().out)
    assert shown["seed"] == 3


def test_the_folder_of_a_run_and_the_name_of_its_job_are_read() -> None:
    words = ["hydra.job.name=mine", "hydra.run.dir=runs/${hydra:job.name}"]
    assert str(compose(words).folder) == "runs/mine"
    assert not HydraConfig.initialized()  # or Lightning takes this program for one of Hydra's
