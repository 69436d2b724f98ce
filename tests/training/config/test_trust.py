"""One rule of trust for all that reads a stored run: what it may name, and what only its user."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from thinned import every
from training.tiny_runs import listops, read_json, run, train

import graphfold
from graphfold.errors import CheckpointError, GraphfoldError
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import TRAINED, named_packages, refuse_untrusted
from graphfold.training.run.checkpoint import Checkpoint

#: A module that must not be imported, and a path into it in every form.
EVIL = "evilpkg"
FORMS = (f"{EVIL}.Thing", f"{EVIL}:Thing", f"./{EVIL}.py:Thing", f"{EVIL}.py", EVIL)

EVIL_CODE = """
from graphfold.datasets.readers.listops import ListOpsAdapter
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell
from graphfold.metrics import metric

class Reader(ListOpsAdapter):
    pass

@metric(task="multiclass", higher_is_better=True)
def best(predicted, target):
    return (predicted.argmax(1) == target).float().mean()
"""


@pytest.fixture(autouse=True)
def _planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module can be imported from the current folder; each test says if it may be."""
    (tmp_path / f"{EVIL}.py").write_text(EVIL_CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop(EVIL, None)
    yield
    sys.modules.pop(EVIL, None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("trust") / "run", *listops("trainer.max_epochs=1"))


@pytest.fixture
def foreign(finished: Path, tmp_path: Path) -> Path:
    """A run folder that came from elsewhere."""
    return Path(shutil.copytree(finished, tmp_path / "foreign"))


def stored_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
    return config


def change_config(folder: Path, **sections: Any) -> None:
    """Changes config.yaml and the configs of all checkpoints."""
    config = {**stored_config(folder), **sections}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    for path in (folder / "checkpoints").iterdir():
        stored = Checkpoint.load(path)
        stored.config.update(sections)
        stored.save(path)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.load",
        "torch.nn.functional.relu",
        "torch.hub.load",
        "torch.nn.modules.module.functools.partial",
        "graphfold.recipe.train",
        "graphfold.training.Loop",
        "graphfold.files.write_text",
        "graphfold.datasets.data_module.DataModule",
        "graphfold.blocks.compile",
        "graphfold.blocks.models.tree_lstm.torch.nn.Linear",
        "graphfold.blocks.models.tree_lstm._with_rows",
        "graphfold.layers.graph_model.nn.Linear",
        "graphfold_evil.Cell",
        "functools.partial",
        "lightning.pytorch.loggers.WandbLogger",
        "${oc.env:HOME}",
        "",
        3,
    ],
)
def test_a_run_may_not_name(target: Any) -> None:
    config = {"model": {"cells": [{"word": {"_target_": target, "args": "rm -rf /"}}]}}
    with pytest.raises(CheckpointError, match=r"model\.cells\[0\]\.word names .*--trust"):
        refuse_untrusted(config, ())


@pytest.mark.parametrize(
    "target",
    [
        "graphfold.layers.GCNCell",
        "graphfold.layers.molecules.convolutions.GCNCell",
        "graphfold.batching.Rounds",
        "graphfold.blocks.BlockModel",
        "graphfold.blocks.models.tree_lstm",
        "torch.nn.Linear",
        "torch.optim.Adam",
        "torch.optim.lr_scheduler.StepLR",
        "graphfold.training.Trainer",
        "graphfold.training.EarlyStopping",
        "graphfold.training.AverageWeights",
        "graphfold.training.TensorBoardLogger",
        "graphfold.training.WandbLogger",
        "graphfold.training.MLflowLogger",
    ],
)
def test_a_run_may_name(target: str) -> None:
    config = {"model": {"_target_": target}}
    refuse_untrusted(config, ())
    assert named_packages(config) == []


#: Keys whose value is a class, a function or an adapter.
NAMED = (
    *("model.head._target_", "optimizer._target_", "callbacks.x._target_", "logger.x._target_"),
    *("metrics", "data.split", "data.adapter", "data.features"),
)


def planted(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a config with a value at a path."""
    changed = copy.deepcopy(config)
    node: Any = changed
    for key in path[:-1]:
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]
    node[path[-1]] = value
    return changed


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("key", NAMED)
def test_every_form_of_a_name_is_refused_with_the_words_that_allow_it(
    key: str, form: str, finished: Path
) -> None:
    config = planted(
        stored_config(finished), tuple(key.split(".")), [form] if key == "metrics" else form
    )
    place = key.removesuffix("._target_")
    allowed = "--trust PACKAGE" if form.startswith("./") else f"add --trust {EVIL}"
    with pytest.raises(CheckpointError, match=rf"{place} names '{form}'.* {allowed}"):
        refuse_untrusted(config, (), TRAINED)
    if not form.startswith("./"):
        refuse_untrusted(config, (EVIL,), TRAINED)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a nested config, inner ones too."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("shift", every(len(FORMS), range(len(FORMS))))
def test_a_name_in_any_place_of_a_config_is_refused_or_nothing_but_text(
    shift: int, finished: Path
) -> None:
    stored = stored_config(finished)
    for number, path in enumerate(sorted(places(stored), key=str)):
        form = FORMS[(number + shift) % len(FORMS)]
        for value in (form, {"x": {"_target_": form, "_partial_": True}}):
            try:
                config = TrainingConfig.stored(planted(stored, path, value), Path("x"))
                refuse_untrusted(config.mapping, (), TRAINED)
                check_parts(config)
            except GraphfoldError:
                pass
            assert EVIL not in sys.modules, (path, value)


def test_the_rule_is_the_same_for_all_that_reads_a_run(
    foreign: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run names an adapter, a metric at a path with a colon, and cells of a stranger."""
    best = Checkpoint.load(foreign / "checkpoints" / "best.ckpt")
    cache = finished.parent / "cache"
    files = [next(cache.rglob(state["path"])) for state in best.split["files"]]
    parts = {p: str(f) for f in files for p in ("train", "val", "test") if p in f.name}
    data = {"adapter": f"{EVIL}.Reader", "path": parts, "seed": 1, "batch_size": 8}
    model = yaml.safe_load(
        yaml.safe_dump(best.config["model"]).replace("graphfold.layers.Nary", f"{EVIL}.Nary")
    )
    commands: list[list[Any]] = [
        ["train", f"resume={foreign}"],
        ["evaluate", foreign],
        ["predict", foreign, next(iter(parts.values()))],
        ["verify", foreign, "--examples", "2"],
    ]
    sections: dict[str, Any] = {"data": data, "metrics": [f"{EVIL}:best"], "model": model}
    for key, value in sections.items():
        before = stored_config(foreign)[key]
        change_config(foreign, **{key: value})
        for command in commands:
            assert run(*command) == 2, (key, command)
            assert f"add --trust {EVIL}" in capsys.readouterr().err
        with pytest.raises(CheckpointError, match=f"add --trust {EVIL}"):
            graphfold.load(foreign)
        change_config(foreign, **{key: before})
    assert EVIL not in sys.modules
    change_config(foreign, **sections)
    for path in (foreign / "checkpoints").iterdir():
        stored = Checkpoint.load(path)
        stored.packages.append(EVIL)  # a checkpoint does not vouch for itself
        stored.save(path)
    assert run(*commands[0]) == 2
    for command in commands:
        assert run(*command, "--trust", EVIL) == 0
    assert read_json(foreign / "metrics.json")["test/best"] is not None
    assert graphfold.load(foreign, trust=[EVIL]).predict(["1\t( ( ( [MAX 1 ) 0 ) ] )"])


@pytest.mark.parametrize("section", ["optimizer", "lr_scheduler", "trainer", "callbacks", "logger"])
@pytest.mark.parametrize("has_last", [True, False])
def test_resuming_runs_no_program_that_a_config_names(
    section: str, has_last: bool, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touched = foreign / "touched"
    node = {"_target_": "subprocess.Popen", "args": ["touch", str(touched)]}
    stored = stored_config(foreign)[section]
    change_config(
        foreign,
        **{section: {"x": node} if section in ("callbacks", "logger") else {**stored, **node}},
    )
    if not has_last:
        (foreign / "checkpoints" / "last.ckpt").unlink()
    assert run("train", f"resume={foreign}") == 2
    assert "names 'subprocess.Popen'" in capsys.readouterr().err
    assert not touched.exists()


class Pickled:
    """Its pickle imports the module."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (EVIL,)


def test_nothing_unpickles_a_stranger_s_object(
    foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (foreign / "checkpoints").iterdir():
        torch.save({"format": "graphfold checkpoint", "state_dict": Pickled()}, path)
    best = foreign / "checkpoints" / "best.ckpt"
    for command in (
        ["train", f"resume={foreign}"],
        ["evaluate", str(foreign)],
        ["train", *listops(), f"init_from={foreign}", f"hydra.run.dir={foreign}-new"],
        ["train", "data=esol", f"model.encoder_from={best}", f"hydra.run.dir={foreign}-new"],
    ):
        assert run(*command) == 2
        assert "--debug" not in capsys.readouterr().err
    (foreign / "config.yaml").write_text(f"!!python/object/apply:{EVIL}.f []")
    assert run("train", f"resume={foreign}") == 2
    assert "cannot be read" in capsys.readouterr().err
    assert EVIL not in sys.modules


def test_a_foreign_run_does_not_choose_the_cache_folder(foreign: Path, tmp_path: Path) -> None:
    elsewhere, own = tmp_path / "elsewhere", tmp_path / "own"
    change_config(foreign, data={**stored_config(foreign)["data"], "cache_dir": str(elsewhere)})
    assert run("evaluate", foreign, "--set", f"cache_dir={own}", "--json", tmp_path / "e.json") == 0
    assert own.is_dir()
    assert read_json(tmp_path / "e.json") == read_json(foreign / "metrics.json")
    assert run("evaluate", foreign) == 0
    assert run("train", f"resume={foreign}") == 0
    assert run("verify", foreign, "--examples", "2") == 0
    assert not elsewhere.exists()
