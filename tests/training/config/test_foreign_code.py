"""The folder of a search that came from elsewhere runs none of its code, whatever names it.

A module is planted where a class or a function can be named.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from training.tiny_runs import run, train, write_molecules

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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on molecules that trains at once."""
    folder = tmp_path_factory.mktemp("foreign")
    table = write_molecules(folder / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", *QUICK]
    return train(folder / "run", *own)


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
