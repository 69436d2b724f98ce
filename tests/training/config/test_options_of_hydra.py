"""What Hydra's own programs have is done here, or refused in words; nothing is ignored."""

from __future__ import annotations

import copy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from training.tiny_runs import (
    listops,
    read_json,
    run,
    train,
    write_corpora,
    write_molecules,
)

from graphfold.errors import ConfigError
from graphfold.training.config.compose import compose


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra/launcher=joblb", "-m", "seed=1,2"], "Did you mean 'joblib'?"),
        (["--resolve"], "--resolve fills in what --cfg shows. Add --cfg job."),
        (
            ["-m", "optimizer.lr=interval(0,1)"],
            "BasicSweeper does not support sweep type : INTERVAL",
        ),
        (["-m", "seed=1,2", "--cfg", "job"], "--cfg shows the config of one run. Leave -m out."),
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


NEEDS_RAY = pytest.mark.skipif(
    find_spec("hydra_plugins.hydra_ray_launcher") is None,
    reason="hydra-ray-launcher is not there: it takes no cloudpickle from 3 on, as others need it",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no launcher started."""
    folder = tmp_path_factory.mktemp("alone")
    return train(folder / "run", *listops("optimizer.lr=0.01", "trainer.max_epochs=1"))


@pytest.mark.parametrize(
    ("launcher", "job_id", "options"),
    [
        ("basic", "1", []),
        ("joblib", "train_1", ["hydra.launcher.n_jobs=1"]),  # in this process
        # Processes of their own, each of which loads torch.
        pytest.param("joblib", "train_1", [], marks=pytest.mark.slow),
        pytest.param("submitit_local", None, [], marks=pytest.mark.slow),
        pytest.param("ray", None, [], marks=[pytest.mark.slow, NEEDS_RAY]),
    ],
)
def test_a_launcher_runs_each_combination_though_one_fails(
    launcher: str,
    job_id: str | None,
    options: list[str],
    alone: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [*listops("logger=none", f"data.cache_dir={tmp_path}/cache"), "trainer.max_epochs=1"]
    chosen = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={tmp_path}/s", *options]
    name = [] if job_id is None else ["+name_of_job=${hydra:job.id}"]
    assert run("train", "-m", *words, *chosen, *name, "optimizer.lr=1e38,0.01") == 1
    if launcher == "ray":
        import_module("ray").shutdown()  # or it prints on in later tests
    errors = capfd.readouterr().err
    assert f"1 of 2 runs failed: 0 in {tmp_path}/s" in errors
    assert "Traceback" not in errors
    if launcher in ("basic", "joblib"):  # others print elsewhere
        assert errors.count("error: ") == 1
    assert not (tmp_path / "s/0/metrics.json").exists()
    assert read_json(tmp_path / "s/1/metrics.json") == read_json(alone / "metrics.json")
    rows = (tmp_path / "s/sweep.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["run", "1"]
    if job_id is not None:
        config = yaml.safe_load((tmp_path / "s/1/config.yaml").read_text())
        assert str(config["name_of_job"]) == job_id


def test_the_launcher_for_slurm_composes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/several_machines.md gives it; what it starts is tried where there is SLURM."""
    words = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=short"]
    words += ["hydra.launcher.timeout_min=60", "hydra.launcher.cpus_per_task=2"]
    assert run("train", "--cfg", "hydra", *words, f"hydra.sweep.dir={tmp_path}") == 0
    config = yaml.safe_load(capsys.readouterr().out)["hydra"]
    launcher = config["launcher"]
    assert launcher["_target_"].endswith(".SlurmLauncher")
    assert launcher["partition"] == "short"
    assert (launcher["timeout_min"], launcher["cpus_per_task"]) == (60, 2)
    assert (launcher["nodes"], launcher["tasks_per_node"]) == (1, 1)
    assert run("train", "--cfg", "hydra", words[0], "hydra.launcher.partitoin=short") == 2
    assert "partitoin" in capsys.readouterr().err


class InTurn(Sweeper):
    """The first run decides what the second one is given."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        words = [*arguments, f"optimizer.lr={self.rate}"]
        (first,) = self.launcher.launch([words], initial_job_idx=0)
        self.launcher.launch([[*words, f"+score={first.return_value}"]], initial_job_idx=1)


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper, as Hydra finds one in a package `hydra_plugins` when a process begins."""
    store, name = ConfigStore.instance(), "hydra_plugins.in_turn.InTurn"
    monkeypatch.setattr(store, "repo", copy.deepcopy(store.repo))
    store.store(group="hydra/sweeper", name="in_turn", node={"_target_": name, "rate": 0.25})
    monkeypatch.setitem(Plugins.instance().class_name_to_class, name, InTurn)


@pytest.mark.usefixtures("in_turn")
def test_a_sweeper_of_a_plugin_is_told_the_metric_that_chose_the_epoch(tmp_path: Path) -> None:
    words = [*listops("logger=none", f"data.cache_dir={tmp_path}/cache"), "trainer.max_epochs=1"]
    chosen = ["hydra/sweeper=in_turn", "hydra.sweeper.rate=0.125", f"hydra.sweep.dir={tmp_path}/s"]
    assert run("train", "-m", *words, *chosen) == 0
    first, second = (yaml.safe_load((tmp_path / f"s/{n}/config.yaml").read_text()) for n in (0, 1))
    assert first["optimizer"]["lr"] == second["optimizer"]["lr"] == 0.125
    assert second["score"] == read_json(tmp_path / "s/0/metrics.json")["val/accuracy"]
    assert len((tmp_path / "s/sweep.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_a_fault_of_the_code_in_a_sweep_is_shown_with_its_traceback(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["logger=none", f"data.cache_dir={tmp_path}/cache", f"hydra.sweep.dir={tmp_path}/s"]
    fault = ZeroDivisionError("of the code") if not options else ConfigError("of the user")
    with mock.patch("graphfold.recipe.train_command", side_effect=fault):
        assert run("train", "-m", *options, *listops(*settings), "seed=1,2") == 1
    errors = capsys.readouterr().err
    assert errors.count("Traceback") == errors.count(f"{type(fault).__name__}: {fault}") == 2
    assert f"2 of 2 runs failed: 0, 1 in {tmp_path}/s" in errors


def test_a_sweep_over_data_gives_each_its_model(tmp_path: Path) -> None:
    settings = ["logger=none", f"data.cache_dir={tmp_path}/cache", "trainer.max_epochs=1"]
    words = ["data=esol,sst", f"data.root={write_corpora(tmp_path / 'data')}", *settings]
    assert run("train", "-m", *words, f"hydra.sweep.dir={tmp_path}/s") == 0
    configs = [yaml.safe_load((tmp_path / f"s/{n}/config.yaml").read_text()) for n in (0, 1)]
    assert [config["data"]["corpus"] for config in configs] == ["esol", "sst"]
    assert [config["name"] for config in configs] == ["esol_gcn", "sst_binary_tree_lstm"]
    metrics = [read_json(tmp_path / f"s/{n}/metrics.json") for n in (0, 1)]
    assert "test/rmse" in metrics[0]
    assert "test/root_accuracy" in metrics[1]


@pytest.mark.parametrize("sweeps", [False, True])
def test_a_run_may_have_its_folder_as_the_current_one(
    sweeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are those of the folder in which the command was started."""
    monkeypatch.chdir(tmp_path)
    write_molecules(tmp_path / "molecules.csv")
    words = [
        *("data=smiles", "data.path=molecules.csv", "data.target_columns=[c]", "model=gcn"),
        *("data.cache_dir=cache", "trainer.max_epochs=1", "logger=none", "hydra.job.chdir=true"),
    ]
    if sweeps:
        assert run("train", "-m", *words, "hydra.sweep.dir=s", "seed=1,2") == 0
        assert len((tmp_path / "s/sweep.csv").read_text().splitlines()) == 5
    else:
        assert run("train", *words, "hydra.run.dir=s/0") == 0
    assert Path.cwd() == tmp_path
    config = yaml.safe_load((tmp_path / "s/0/config.yaml").read_text())
    assert config["data"]["path"] == str(tmp_path / "molecules.csv")
    assert (tmp_path / "s/0/metrics.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "molecules.csv", "s"}


def test_the_config_that_is_shown_is_that_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the model needs of the data is shown, too."""
    write_molecules(tmp_path / "molecules.csv")
    words = [
        *("data=smiles", f"data.path={tmp_path}/molecules.csv", "data.target_columns=[c]"),
        *("model=dmpnn", "model.hidden_size=8", "trainer.max_epochs=1"),
        *(f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.run.dir={tmp_path}/run"),
    ]
    assert run("train", *words, "--cfg", "job", "--resolve") == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["data"]["directed_bonds"]
    assert run("train", *words) == 0
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text()) == shown


def test_the_folder_of_a_run_and_the_name_of_its_job_are_read() -> None:
    words = ["hydra.job.name=mine", "hydra.run.dir=runs/${hydra:job.name}"]
    assert str(compose(words).folder) == "runs/mine"
    assert not HydraConfig.initialized()  # or Lightning takes this program for one of Hydra's
