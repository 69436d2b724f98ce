"""Columns of a table of molecules that are no targets: the given part, weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets.tree_files import read

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError, DataError, RecordError

TABLE = "smiles,y,T,pH,set\nCCO,1,300,7,train\nC,2,310.5,,Test\nCC,3,-2e1,6.5,VALID\n"


def table(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def test_a_column_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"no column 'part' among .* Set data\.split_column"):
        read(SmilesAdapter(split_column="part"), table(tmp_path))
    with pytest.raises(ConfigError, match=r"the column 'y' is asked for more than once"):
        SmilesAdapter(target_columns="y", split_column="y")


def test_prediction_reads_neither_targets_nor_parts(tmp_path):
    adapter = SmilesAdapter(target_columns="y", split_column="set").without_targets()
    assert read(adapter, table(tmp_path, "T,smiles\n3,C\n")).dag.num_graphs == 1


def data(tmp_path: Path, **settings: Any) -> DataModule:
    options = {"smiles_column": "smiles", "target_columns": ["y"], "cache_dir": str(tmp_path / "c")}
    if "path" not in settings:
        settings["path"] = str(table(tmp_path))
    module = DataModule(adapter="smiles", **options, **settings)
    module.prepare()
    return module


def test_without_a_val_part_it_is_drawn_from_train(tmp_path):
    rows = [f"{'C' * n}O,{n},{'test' if n % 4 == 0 else 'train'}" for n in range(1, 41)]
    path = table(tmp_path, "smiles,y,set\n" + "\n".join(rows) + "\n")
    found = [data(tmp_path, path=str(path), split_column="set", seed=s).split for s in (1, 1, 2)]
    assert found[0].sizes() == {"train": 26, "val": 4, "test": 10}
    assert [split.test.tolist() for split in found] == [list(range(3, 40, 4))] * 3
    assert found[0].val.tolist() == found[1].val.tolist() != found[2].val.tolist()


def test_a_part_that_nobody_knows(tmp_path):
    path = table(tmp_path, "smiles,y,set\nC,1,holdout\n")
    message = r":2: 'holdout' in the split column 'set' is no part\. Write one of train, training"
    with pytest.raises(RecordError, match=message):
        data(tmp_path, path=str(path), split_column="set")


@pytest.mark.parametrize("cell", ["1e39", "-1", "nan", "inf", "1_0", ""])
def test_a_weight_is_a_finite_number_from_0_on(cell, tmp_path):
    path = table(tmp_path, f"smiles,y,w\nCCO,1,0\nC,2,{cell}\n")
    with pytest.raises(RecordError, match=r"t\.csv:3: weight 'w' is .* no number from 0 on"):
        read(SmilesAdapter(target_columns="y", weight_column="w"), path)


def test_some_record_of_the_training_part_has_weight(tmp_path):
    path = table(tmp_path, "smiles,y,w,set\nC,1,0,train\nCC,2,0,train\nCCC,3,1,val\nCO,4,1,test\n")
    columns = {"target_columns": ["y"], "weight_column": "w", "split_column": "set"}
    settings = {"cache_dir": tmp_path / "cache", "num_workers": 0, "split": "given"}
    data = DataModule(adapter="smiles", path=path, **columns, **settings)
    with pytest.raises(DataError, match="every record of the training part has weight 0"):
        data.prepare()
