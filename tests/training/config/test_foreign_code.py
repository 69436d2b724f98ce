"""A folder that came from elsewhere runs none of its code, by whatever key it names it.

A module is planted in every place where a class or a function can be named: every key of a config,
YAML tags, interpolations, pickles in checkpoints.
"""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from thinned import every, thinned
from training.tiny_runs import QUICK, listops, run, train, write_molecules

from graphfold.errors import CheckpointError, GraphfoldError
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import TRAINED, refuse_untrusted
from graphfold.training.run.checkpoint import Checkpoint

#: The module that must not be imported, and a path into it.
EVIL, THING = "evilpkg", "evilpkg.Thing"

#: Every form in which a name can lead out; the files lie in the current folder.
FORMS = (THING, f"{EVIL}:Thing", f"{EVIL}.py", f"./{EVIL}.py:Thing", EVIL)

TARGET = {"_target_": THING, "_partial_": True}


@pytest.fixture(autouse=True)
def _planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module is there to be imported; no test may have done so, or asked for a traceback."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / f"{EVIL}.py").write_text("class Thing:\n    def __init__(self, *a, **k): pass\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    sys.modules.pop(EVIL, None)  # other tests trust a module of that name
    yield
    imported = sys.modules.pop(EVIL, None)
    assert imported is None, "a stranger's module was imported"


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a nested config, inner ones too."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def planted(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a config with a value at a path."""
    changed = copy.deepcopy(config)
    node: Any = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return changed


def every_config(
    config: dict[str, Any], paths: Iterable[tuple[Any, ...]], shift: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what was done, config with the module in one of the places, as a value or as a key)."""
    for number, path in enumerate(sorted(paths, key=str)):
        name, form = ".".join(map(str, path)), FORMS[(number + shift) % len(FORMS)]
        for value in (form, {"x": {**TARGET, "_target_": form}}):
            yield f"{name}={value}", planted(config, path, value)
        if isinstance(path[-1], str):
            yield f"{name}.{form}", planted(config, (*path[:-1], form), {"_target_": form})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on molecules that trains at once."""
    folder = tmp_path_factory.mktemp("foreign")
    table = write_molecules(folder / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", *QUICK]
    return train(folder / "run", *own)


@pytest.fixture
def foreign(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Puts a config into config.yaml and all checkpoints of a run."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    for path in (folder / "checkpoints").iterdir():
        stored = Checkpoint.load(path)
        object.__setattr__(stored, "config", {**config, "model": stored.config["model"]})
        if "evil" in str(config["model"]):
            object.__setattr__(stored, "config", config)
        path.write_bytes(stored.encode())


def commands(folder: Path, table: Path) -> list[list[Any]]:
    """Every command that reads a run folder."""
    return [
        ["train", f"resume={folder}", "trainer.max_epochs=9"],
        ["evaluate", folder],
        ["evaluate", folder, "--data", table],
        ["predict", folder, table],
        ["draw", folder, table, "--output", folder / "drawings"],
        ["fingerprint", folder, table],
        ["verify", folder, "--examples", "2"],
        ["train", f"init_from={folder}", f"hydra.run.dir={folder}-new", "trainer.max_epochs=1"],
        ["bench", "page", folder / "config.yaml"],
    ]


@pytest.mark.parametrize("shift", every(len(FORMS), range(len(FORMS))))
def test_a_name_in_any_place_of_a_config_is_refused_or_nothing_but_text(
    shift: int, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the checks that come before all work, then the commands for what passes them."""
    stored = yaml.safe_load((finished / "config.yaml").read_text())
    other = compose(listops()).config.mapping
    passed, seen = [], {*places(stored)}
    for config, paths in ((stored, seen), (other, {*places(other)} - seen)):
        for name, changed in every_config(config, paths, shift):
            try:
                kept = TrainingConfig.stored(changed, Path("x"))
                refuse_untrusted(kept.mapping, (), TRAINED)
                check_parts(kept)
            except GraphfoldError:
                assert EVIL not in sys.modules, name
                continue
            assert EVIL not in sys.modules, name
            if config is stored:
                passed.append((name, changed))
    assert 0 < len(passed) < 90
    for number, (name, changed) in enumerate(passed[shift % 3 :: 3]):
        folder = Path(shutil.copytree(finished, tmp_path / str(number)))
        write_config(folder, changed)
        for command in (["train", f"resume={folder}"], ["evaluate", folder]):
            assert run(*command) in (0, 2), name
            assert "--debug" not in capsys.readouterr().err, name
            assert EVIL not in sys.modules, name


#: Keys whose value is a class, a function or an adapter, with values that name the module.
NAMED: dict[str, Any] = {
    "model._target_": THING,
    "model.head._target_": THING,
    "optimizer._target_": THING,
    "lr_scheduler._target_": THING,
    "trainer._target_": THING,
    "callbacks.x": TARGET,
    "logger.x": TARGET,
    "metrics": [THING],
    "data.split": THING,
    "data.adapter": THING,
    "data.features": THING,
    # A class of graphfold that would import what its arguments name.
    "model.head": {
        "_target_": "graphfold.datasets.data_module.DataModule",
        "adapter": THING,
        "path": "x",
    },
}

#: What scoring does not build, and so need not refuse.
OF_TRAINING = ("optimizer", "lr_scheduler", "trainer", "callbacks", "logger", "data.split")


@pytest.mark.parametrize("key", NAMED)
def test_every_command_refuses_a_run_that_names_code(
    key: str, foreign: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = yaml.safe_load((foreign / "config.yaml").read_text())
    write_config(foreign, named(stored, key, THING))
    shutil.copytree(foreign, f"{foreign}-2")
    table = finished.parent / "m.csv"
    most = key in ("model._target_", "data.adapter", "metrics")
    for command in commands(foreign, table)[: None if most else 2]:
        code = run(*command)
        text = capsys.readouterr().err
        assert EVIL not in sys.modules, command
        assert code in (0, 2), command
        assert "--debug" not in text, command
        reads_all = command[0] == "train" and f"resume={foreign}" in command
        applies = command[0] in ("evaluate", "predict", "draw", "fingerprint", "verify")
        if reads_all or (applies and not key.startswith(OF_TRAINING)):
            assert code == 2, command
            assert f"add --trust {EVIL}" in text or "--trust graphfold" in text, command


def named(config: dict[str, Any], key: str, form: str) -> dict[str, Any]:
    """A copy of a config whose key names the module in some form."""
    changed = copy.deepcopy(config)
    node: Any = changed
    *above, last = key.split(".")
    for part in above:
        node[part] = node[part] or {}
        node = node[part]
    node[last] = yaml.safe_load(yaml.safe_dump(NAMED[key]).replace(THING, form))
    return changed


@pytest.mark.parametrize("form", FORMS[:-1])
@pytest.mark.parametrize("key", [*NAMED][:-1])
def test_every_form_of_a_name_is_refused_with_the_words_that_allow_it(
    key: str, form: str, finished: Path
) -> None:
    stored = yaml.safe_load((finished / "config.yaml").read_text())
    config = named(stored, key, form)
    place = key.removesuffix("._target_")
    allowed = "--trust PACKAGE" if form.startswith("./") else f"add --trust {EVIL}"
    with pytest.raises(CheckpointError, match=rf"{place} names '{form}'.* {allowed}"):
        refuse_untrusted(config, (), TRAINED)
    if form in (THING, f"{EVIL}:Thing"):
        refuse_untrusted(config, (EVIL,), TRAINED)


@pytest.mark.parametrize("form", thinned(FORMS, [FORMS[1]]))
@pytest.mark.parametrize("part", ["spec", "split", "packages", "versions", "calibration"])
def test_a_name_in_what_a_checkpoint_says_of_its_data_is_nothing_but_text(
    part: str, form: str, foreign: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = foreign / "checkpoints" / "best.ckpt"
    stored = Checkpoint.load(path)
    content = getattr(stored, part)
    for place in sorted(places(content), key=str)[FORMS.index(form) :: len(FORMS)]:
        if isinstance(content, dict):
            object.__setattr__(stored, part, planted(content, place, form))
        else:
            object.__setattr__(stored, part, [*content, form])
        path.write_bytes(stored.encode())
        for command in (["evaluate", path], ["predict", path, finished.parent / "m.csv"]):
            assert run(*command) in (0, 2), place
            assert "--debug" not in capsys.readouterr().err, place
            assert EVIL not in sys.modules, place


def test_a_metric_at_a_path_with_a_colon_is_trusted_as_any_other(
    foreign: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{EVIL}.py").write_text(
        "from graphfold.metrics import metric\n"
        "@metric(task='regression', higher_is_better=False)\n"
        "def worst(predicted, target):\n    return (predicted - target).abs().max()\n"
    )
    write_config(
        foreign,
        {**yaml.safe_load((foreign / "config.yaml").read_text()), "metrics": [f"{EVIL}:worst"]},
    )
    command: list[Any] = ["evaluate", foreign, "--data", finished.parent / "m.csv"]
    assert run(*command) == 2
    assert f"metrics names '{EVIL}:worst'" in capsys.readouterr().err
    assert EVIL not in sys.modules
    assert run(*command, "--trust", EVIL) == 0
    assert "worst" in capsys.readouterr().out
    assert sys.modules.pop(EVIL)


class Pickled:
    """Its pickle imports the module."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (EVIL,)


def test_no_command_unpickles_a_stranger_s_object(
    foreign: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (foreign / "checkpoints").iterdir():
        torch.save({"format": "graphfold checkpoint", "state_dict": Pickled()}, path)
    shutil.copytree(foreign, f"{foreign}-2")
    encoder = ["train", "data=esol", f"model.encoder_from={foreign}/checkpoints/best.ckpt"]
    for command in [*commands(foreign, finished.parent / "m.csv")[:-1], encoder]:
        assert run(*command) == 2
        assert EVIL not in sys.modules, command
        assert "--debug" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        f"!!python/object/apply:{EVIL}.f []",
        f"!!python/name:{THING} ''",
        f"{{a: !!python/module:{EVIL} ''}}",
    ],
)
def test_tags_of_yaml_make_no_objects(
    text: str, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (foreign / "config.yaml").write_text(text)
    assert run("train", f"resume={foreign}") == 2
    assert "cannot be read" in capsys.readouterr().err


def search_in(folder: Path, table: Path, **changes: Any) -> Path:
    """The folder of a search that has not begun, as a stranger may send it."""
    search = {
        "overrides": ["data=smiles", f"data.path={table}", "data.target_columns=[c]"],
        "config_dir": None,
        "space": {"optimizer.lr": [0.1, 0.2]},
        "trials": 1,
        "startup_trials": 1,
        "prune": False,
        "warmup_epochs": 0,
        "seed": 1,
        "monitor": "val/rmse",
        "direction": "min",
    }
    search["overrides"] += ["model=kernel", "data.fingerprint_size=16"]
    search["overrides"] += changes.pop("more", [])
    folder.mkdir(exist_ok=True)
    (folder / "tune.yaml").write_text(yaml.safe_dump({**search, **changes}, sort_keys=False))
    return folder


def as_override(key: str, value: Any) -> str:
    if isinstance(value, dict):
        text = "{" + ",".join(f"{k}:{as_override('', v)[1:]}" for k, v in value.items()) + "}"
        return f"{key}={text}"
    return f"{key}={value}".replace("True", "true").replace("'", "")


#: What tune.yaml may hold -> the words of the message.
SEARCHES: dict[str, dict[str, Any]] = {
    **{f"override {k}": {"more": [f"++{as_override(k, v)}"]} for k, v in NAMED.items()},
    "override metrics with a colon": {"more": [f"metrics=['{FORMS[1]}']"]},
    "override data.adapter with a file": {"more": [f"data.adapter='{FORMS[3]}'"]},
    "space with a colon": {"space": {"data.adapter": ["smiles", FORMS[1]]}},
    "space": {"space": {"model._target_": [THING, "graphfold.layers.KernelModel"]}},
    "space of adapters": {"space": {"data.adapter": ["smiles", THING]}},
    "space of metrics": {"space": {"+metrics": [[THING]]}},
    "search path": {"more": [f"hydra.searchpath=[pkg://{EVIL}]"]},
    "search path added": {"more": [f"++hydra.searchpath=[pkg://{EVIL}]"]},
    "search path in the space": {"space": {"++hydra.searchpath": [[f"pkg://{EVIL}"]]}},
}


@pytest.mark.parametrize("monitor", ["", "val/rmse"])
@pytest.mark.parametrize("place", SEARCHES)
def test_a_search_is_judged_by_what_was_typed(
    place: str,
    monitor: str,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if monitor and not place.startswith(("override model._", "space", "search path")):
        return
    folder = search_in(
        tmp_path / "s", finished.parent / "m.csv", **{"monitor": monitor, **SEARCHES[place]}
    )
    before = sorted(tmp_path.rglob("*"))
    assert run("tune", f"resume={folder}") == 2
    error = capsys.readouterr().err
    assert EVIL not in sys.modules
    assert "--trust" in error or "sets Hydra itself" in error or "cannot be searched" in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["override model._target_", "space", "search path"])
@pytest.mark.parametrize("sign", ["+", "++"])
def test_a_search_is_judged_however_it_is_named(
    sign: str, place: str, finished: Path, tmp_path: Path
) -> None:
    folder = search_in(tmp_path / "s", finished.parent / "m.csv", **SEARCHES[place])
    assert run("tune", f"{sign}resume={folder}") == 2
    assert EVIL not in sys.modules


def test_a_search_may_not_name_code_in_its_config_files(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own','pkg:" / EVIL
    (own / "data").mkdir(parents=True)
    (own / "data" / "theirs.yaml").write_text(
        f"defaults: [smiles]\nadapter: {THING}\npath: x\nsmiles_column: null\n"
    )
    (own / "experiment").mkdir()
    (own / "experiment" / "theirs.yaml").write_text(
        f"# @package _global_\nhydra:\n  searchpath: ['pkg://{EVIL}']\n"
    )
    (own / "model").mkdir()
    (own / "model" / "theirs.yaml").write_text(f"_target_: {THING}\nhead: null\n")
    for word in ("data=theirs", "experiment=theirs", "model=theirs"):
        more = [word, f"{word.partition('=')[0]}.zz=1"]  # its options are read from its class
        folder = search_in(
            tmp_path / "s", finished.parent / "m.csv", config_dir=str(own), more=more
        )
        assert run("tune", f"resume={folder}") == 2
        assert EVIL not in sys.modules
        assert "--debug" not in capsys.readouterr().err


def test_a_value_that_only_a_combination_names_is_refused_in_its_trial(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each value alone is harmless; only together they make a path."""
    space = {"++x": ["graphfold.layers", EVIL], "model._target_": ["${x}.KernelModel"]}
    folder = search_in(
        tmp_path / "s",
        finished.parent / "m.csv",
        space=space,
        trials=4,
        more=["++x=graphfold.layers"],
    )
    assert run("tune", f"resume={folder}") in (0, 1, 2)
    assert EVIL not in sys.modules


def test_the_best_trial_is_what_its_values_say_and_not_its_attributes(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = search_in(tmp_path / "s", finished.parent / "m.csv")
    assert run("tune", f"resume={folder}") == 0
    with sqlite3.connect(folder / "study.db") as base:
        base.execute(
            "insert into trial_user_attributes (trial_id, key, value_json) values "
            f"(1, 'overrides', '[\"++model._target_={THING}\"]')"
        )
    capsys.readouterr()
    assert run("tune", f"resume={folder}") == 0
    assert EVIL not in (folder / "configs" / "experiment" / "best.yaml").read_text()


def test_a_trusted_search_goes_on(finished: Path, tmp_path: Path) -> None:
    more = [f"++callbacks.x={{_target_:{THING}}}"]
    folder = search_in(tmp_path / "s", finished.parent / "m.csv", more=more)
    assert run("tune", f"resume={folder}") == 2
    assert run("tune", f"resume={folder}", "--trust", EVIL) != 0  # it is no callback
    assert sys.modules.pop(EVIL)
