"""One reading of a config, one adapter and one data module in a training."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import listops, run, train

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers import spec


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
