"""Descriptors, columns of numbers and the given part, as a table of molecules has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets.tree_files import read
from rdkit import Chem

from graphfold.datasets.adapter import read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError, DataError, RecordError

TABLE = "smiles,y,T,pH,set\nCCO,1,300,7,train\nC,2,310.5,,Test\nCC,3,-2e1,6.5,VALID\n"


def table(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def graph(adapter: SmilesAdapter, path: Path) -> Any:
    return read(adapter, path).dag


def test_an_input_that_is_missing_names_its_line_and_column(tmp_path):
    adapter = SmilesAdapter(extra_columns=["T", "pH"])
    message = r"t\.csv:3: the input 'pH' is missing\. Fill the cell, or set data\.on_error=skip"
    with pytest.raises(RecordError, match=message):
        read(adapter, table(tmp_path))


@pytest.mark.parametrize("cell", ["warm", "inf", "1_000", "1e99"])
def test_an_input_that_is_no_number(tmp_path, cell):
    path = table(tmp_path, f"smiles,T\nC,{cell}\n")
    with pytest.raises(RecordError, match=rf":2: the input 'T' is '{cell}', which is not a finite"):
        read(SmilesAdapter(extra_columns=["T"]), path)


def test_a_column_that_is_not_there_or_asked_for_twice(tmp_path):
    with pytest.raises(DataError, match=r"no column 't' among .* mean 'T'\? Set data\.extra"):
        read(SmilesAdapter(extra_columns=["t"]), table(tmp_path))
    with pytest.raises(DataError, match=r"no column 'part' among .* Set data\.split_column"):
        read(SmilesAdapter(split_column="part"), table(tmp_path))
    with pytest.raises(ConfigError, match=r"the column 'y' is asked for more than once"):
        SmilesAdapter(target_columns="y", extra_columns=["y"])


def test_prediction_reads_inputs_but_neither_targets_nor_parts(tmp_path):
    options: dict[str, Any] = {"target_columns": "y", "extra_columns": ["T"], "split_column": "set"}
    adapter = SmilesAdapter(**options).without_targets()
    dag = graph(adapter, table(tmp_path, "T,smiles\n3,C\n"))
    assert dag.columns["graph"]["T"].tolist() == [3.0]
    record = adapter.record_of({"smiles": Chem.MolFromSmiles("CCO"), "T": 5})
    dag = read_records(adapter, Path(), [record]).dag
    assert dag.columns["graph"]["T"].tolist() == [5.0]
    with pytest.raises(RecordError, match=r"'CCO' lacks inputs .* Give a dict with 'smiles', 'T'"):
        adapter.record_of("CCO")


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
