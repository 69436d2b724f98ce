"""What Hydra's own programs have is done here, or refused in words; nothing is ignored."""

from __future__ import annotations

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from training.tiny_runs import run

from graphfold.errors import ConfigError
from graphfold.training.config.compose import compose


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra/launcher=joblib", "-m", "seed=1,2"], "no hydra/launcher 'joblib'"),
        (["hydra/launcher=basic"], "'hydra/launcher=basic' has no effect: runs are started by"),
        (["hydra/sweeper=basic", "-m"], "'hydra/sweeper=basic' has no effect"),
        (["+hydra.launcher.n_jobs=2"], "has no effect"),
        (["hydra.verbose=true"], "'hydra.verbose=true' has no effect"),
        (["hydra.job.chdir=true"], "has no effect"),
        (["hydra.sweep.subdir=x", "-m"], "has no effect"),
        (["--config-name", "mine"], "--config-name is an option of Hydra that graphfold has not"),
        (["--config-name=mine"], "choose experiment=NAME"),
        (["-cn", "mine"], "choose experiment=NAME"),
        (["--config-path", "x"], "Name your own folder of config files with --config-dir"),
        (["--info"], "graphfold train --cfg all shows the config"),
        (["--info", "all"], "graphfold train --cfg all shows the config"),
        (["--package", "optimizer"], "--cfg job shows the whole config"),
        (["--hydra-help"], "graphfold train --help"),
        (["--resolve"], "--resolve fills in what --cfg job shows. Add --cfg job."),
        (["--resolve", "--cfg", "hydra"], "--resolve fills in what --cfg job shows"),
    ],
)
def test_what_has_no_effect_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *words) == 2
    assert message in capsys.readouterr().err


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
    with pytest.raises(ConfigError, match="has no effect"):
        compose(["hydra.output_subdir=x"])
