"""Data of one's own in several files: lists and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
from rdkit import Chem

from graphfold.datasets.data_module import DataModule
from graphfold.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, smiles in enumerate(("CCO", "CCC", "c1ccccc1")):
        rows = "".join(f"{smiles},{value}\n" for value in range(4))
        (tmp_path / f"plate{number}.csv").write_text(f"smiles,y\n{rows}")
    (tmp_path / "[odd].csv").write_text("smiles,y\nC,1\n")
    return tmp_path


def read(folder: Path, path: object) -> DataModule:
    data = DataModule(
        adapter="smiles",
        path=path,  # type: ignore[arg-type]
        cache_dir=str(folder / "cache"),
        target_columns=["y"],
        num_workers=0,
    )
    data.prepare()
    return data


def test_a_part_may_have_several(folder):
    parts = {"train": str(folder / "plate[01].csv"), "test": [str(folder / "plate2.csv")]}
    data = read(folder, parts)
    assert data.split.sizes()["train"] + data.split.sizes()["val"] == 8
    assert data.split.sizes()["test"] == 4


def test_a_file_with_such_a_name_is_that_file(folder):
    data = DataModule(adapter="smiles", path=str(folder / "[odd].csv"), target_columns=["y"])
    (file,) = data.source.files(folder, folder)
    assert file.path == folder / "[odd].csv"


def test_mol_files(folder):
    for name in ("CCO", "CCN"):
        (folder / f"{name}.mol").write_text(Chem.MolToMolBlock(Chem.MolFromSmiles(name)))
    data = DataModule(adapter="smiles", path=str(folder / "*.mol"))
    found = data.source.files(folder, folder)
    adapter = data.source.spec.make()
    smiles = [record.content.text for file in found for record in adapter.records(file.path)]
    assert smiles == ["CCN", "CCO"]


def test_a_folder_is_its_files_but_for_hidden_ones(folder):
    (folder / "[odd].csv").unlink()
    (folder / "later").mkdir()
    (folder / "later" / "plate3.csv").write_text("smiles,y\nCC,1\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("no table")
    (folder / ".hidden.csv").write_text("no table")
    found = DataModule(adapter="smiles", path=str(folder), target_columns=["y"])
    files = [file.path.name for file in found.source.files(folder, folder)]
    assert files == ["plate3.csv", "plate0.csv", "plate1.csv", "plate2.csv"]


def test_a_folder_without_files_is_refused(tmp_path):
    data = DataModule(adapter="brackets", path=str(tmp_path))
    with pytest.raises(DataError, match="no file is in it"):
        data.source.files(tmp_path, tmp_path)
