"""A training composes and checks its config once, and opens its file three times at most."""

from __future__ import annotations

import functools
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


def test_what_files_decide_is_one_adapter_more(built: Counter[str], tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    path.write_text(
        "smiles,kind\n" + "".join(f"{'C' * (n + 1)},{'ab'[n % 2]}\n" for n in range(20))
    )
    words = ["data=smiles", f"data.path={path}", "data.target_columns=[kind]"]
    words += ["data.task=classification"]
    train(tmp_path / "run", *words, *QUICK)
    assert built == {"adapter": 2, "data module": 1}


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


def test_a_run_and_its_continuation_read_their_config_once(
    built: Counter[str], read: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, begun = recipe.fit_network, []

    def count_fit(*arguments: Any) -> None:
        begun.append(read.copy())
        fit(*arguments)

    monkeypatch.setattr(recipe, "fit_network", count_fit)
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1"))
    assert begun == [{"composed": 1, "checked": 1}]
    assert built == {"adapter": 1, "data module": 1}
    built.clear()
    assert run("train", f"resume={folder}", "trainer.max_epochs=2") == 0
    assert built == {"adapter": 1, "data module": 1}


def test_a_table_is_opened_to_check_to_identify_and_to_read_it(
    opened: Counter[str], tmp_path: Path
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    opened.clear()
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *QUICK]
    train(tmp_path / "run", *words, "data.num_workers=0")
    assert opened[str(table)] == 3
