"""A training composes and checks its config once, and opens its file three times at most."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from training.tiny_runs import QUICK, listops, run, train, write_molecules

from graphfold import recipe
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers import spec
from graphfold.training.config.folder import config_folder
from graphfold.training.config.training_config import TrainingConfig


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many adapters and data modules have been built."""
    counts: Counter[str] = Counter()
    make_adapter, make_data = spec.make_adapter, DataModule.__init__

    def count_adapter(name: str, **options: Any) -> Any:
        counts["adapter"] += 1
        return make_adapter(name, **options)

    @functools.wraps(make_data)
    def count_data(self: DataModule, *args: Any, **settings: Any) -> None:
        counts["data module"] += 1
        make_data(self, *args, **settings)

    monkeypatch.setattr(spec, "make_adapter", count_adapter)
    monkeypatch.setattr(DataModule, "__init__", count_data)
    return counts


def test_one_adapter_and_one_data_module(built: Counter[str], tmp_path: Path) -> None:
    train(tmp_path / "run", *listops())
    assert built == {"adapter": 1, "data module": 1}


def test_what_files_decide_is_one_adapter_more(built: Counter[str], tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    path.write_text(
        "smiles,kind\n" + "".join(f"{'C' * (n + 1)},{'ab'[n % 2]}\n" for n in range(20))
    )
    words = ["data=smiles", f"data.path={path}", "data.target_columns=[kind]"]
    words += ["data.task=classification"]
    train(tmp_path / "run", *words, "model.hidden_size=8", "trainer.max_epochs=1")
    assert built == {"adapter": 2, "data module": 1}


def test_a_continued_run_reads_its_config_once(built: Counter[str], tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *listops())
    built.clear()
    assert run("train", f"resume={folder}", "trainer.max_epochs=3") == 0
    assert built == {"adapter": 1, "data module": 1}


def test_members_of_an_ensemble_share_the_data(built: Counter[str], tmp_path: Path) -> None:
    train(tmp_path / "run", *listops("ensemble=2", "trainer.max_epochs=1"))
    assert built == {"adapter": 1, "data module": 1}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often train.yaml has been read, and a config checked."""
    counts: Counter[str] = Counter()
    load, of = OmegaConf.load, TrainingConfig.of

    def count_load(file: Any) -> Any:
        counts["composed"] += getattr(file, "name", file) == str(config_folder() / "train.yaml")
        return load(file)

    def count_check(mapping: dict[str, Any]) -> TrainingConfig:
        counts["checked"] += 1
        return of(mapping)

    monkeypatch.setattr(OmegaConf, "load", count_load)
    monkeypatch.setattr(TrainingConfig, "of", count_check)
    return counts


def test_a_config_is_composed_once_and_checked_once(
    read: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, begun = recipe.fit_network, []

    def count_fit(*arguments: Any) -> None:
        begun.append(read.copy())
        fit(*arguments)

    monkeypatch.setattr(recipe, "fit_network", count_fit)
    train(tmp_path / "run", *listops("trainer.max_epochs=1"))
    assert begun == [{"composed": 1, "checked": 1}]


#: Prints how often a file was opened by a command.
OPENED = """
import sys
from graphfold.cli import main

opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
code = main(sys.argv[2:])
print("OPENED", code, [str(path) for path in opened].count(sys.argv[1]))
"""


def test_a_table_is_opened_to_check_to_identify_and_to_read_it(tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["train", "data=smiles", f"data.path={table}", "data.target_columns=[c]", *QUICK]
    words += [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path}/run"]
    command = [sys.executable, "-c", OPENED, str(table), *words, "data.num_workers=0"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.splitlines()[-1] == "OPENED 0 3"
