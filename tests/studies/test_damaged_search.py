"""The folder of a search whose files are damaged: every end is an end in words."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from thinned import thinned
from training.tiny_runs import QUICK, run, write_molecules


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of two trials over a small network."""
    folder = tmp_path_factory.mktemp("search")
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *QUICK]
    words += ["model.depth=1,2", "data.num_workers=0", "tune.trials=2", "logger=none"]
    assert run("tune", *words, f"hydra.run.dir={folder}/s") == 0
    return folder / "s"


@pytest.fixture
def search(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "s"))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        for statement in statements:
            base.execute(statement)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 4000, b"nothing at all"])
def test_a_database_that_is_none_is_named(
    content: bytes, search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (search / "study.db").write_bytes(content)
    code = run("tune", f"resume={search}")
    error = capsys.readouterr().err
    if not content:  # an empty file is an empty database
        assert code == 0
        return
    assert code == 2
    assert "study.db: cannot be read as the trials of this search (" in error
    assert "Restore the file, or remove it to start the search anew." in error


#: Every kind of fault runs with every change, the others are slow.
STATEMENTS = (
    "drop table trials",
    "drop table trial_params",
    "drop table studies",
    "update studies set study_name = 'x'",
    "update trial_params set distribution_json = '{'",
    "update trial_params set param_value = 7",
    "update trials set state = 'SLEEPING'",
    "update trial_values set value = null",
    "delete from trial_values",
    "delete from trial_params",
    "update study_directions set direction = 'MAXIMIZE'",
    "update version_info set schema_version = 99",
    "update alembic_version set version_num = 'v99'",
)
KINDS = (
    "drop table trials",
    "update studies set study_name = 'x'",
    "update trial_params set distribution_json = '{'",
    "update trials set state = 'SLEEPING'",
    "update alembic_version set version_num = 'v99'",
)


@pytest.mark.parametrize("statement", thinned(STATEMENTS, KINDS))
def test_a_database_with_other_contents_ends_in_words(
    statement: str, search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(search / "study.db", statement)
    code = run("tune", f"resume={search}", "tune.trials=3")
    error = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert "--debug" not in error
    assert code == 0 or error


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("overrides", 3, "overrides is 3, but it must be a list of strings"),
        ("overrides", [3], "overrides is [3]"),
        ("space", None, "space is None"),
        ("space", {}, "tune.space is empty"),
        ("space", {"data.fingerprint_size": {"low": "x", "high": 3}}, "tune.space: data.finger"),
        ("trials", "many", "trials is 'many'"),
        ("trials", 0, "trials is 0, but it must be a whole number from 1 on"),
        ("startup_trials", -1, "startup_trials is -1, but it must be a whole number from 1 on"),
        ("warmup_epochs", -1, "warmup_epochs is -1, but it must be"),
        ("prune", "maybe", "prune is 'maybe'"),
        ("seed", -1, "seed is -1, but it must be a whole number from 0 on"),
        ("seed", 1.5, "seed is 1.5"),
        ("monitor", None, "monitor is None"),
        ("direction", "up", "direction is 'up'"),
        ("config_dir", 3, "config_dir is 3"),
        ("config_dir", "/nowhere", "/nowhere: no such folder"),
        ("trails", 3, "has no option 'trails'. Did you mean 'trials'?"),
    ],
)
def test_a_search_with_other_values_is_told(
    key: str, value: Any, message: str, search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = search / "tune.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), key: value}))
    assert run("tune", f"resume={search}") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[", "[1]", "3", "\x00", "a: &a [*a]"])
def test_a_description_that_is_none_is_told(
    content: str, search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (search / "tune.yaml").write_text(content)
    assert run("tune", f"resume={search}") == 2
    assert "tune.yaml: cannot be read (" in capsys.readouterr().err


def test_a_folder_with_marks_of_addresses_in_its_name_is_one(search: Path, tmp_path: Path) -> None:
    strange = search.rename(tmp_path / "a?b#c%20d")
    assert run("tune", f"resume='{strange}'") == 0
    assert not list(tmp_path.glob("a?b#c%20d*/../a"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a?b#c%20d"]


def test_resume_takes_no_folder_of_config_files(
    search: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", f"resume={search}", "--config-dir", tmp_path) == 2
    assert "resume takes no --config-dir" in capsys.readouterr().err
