"""Targets by a pattern: the files make a list of names of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphfold.datasets.adapter import read_records
from graphfold.datasets.adapters.smiles import SmilesAdapter
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.errors import ConfigError, DataError
from graphfold.training.config.compose import compose

#: Some columns of MoleculeNet's sider.csv.
SIDER = [
    "Hepatobiliary disorders",
    "Neoplasms benign, malignant and unspecified (incl cysts and polyps)",
    "Injury, poisoning and procedural complications",
]


def write(path: Path, columns: list[str], rows: list[str]) -> Path:
    header = ",".join(f'"{name}"' for name in columns)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def found(path: Path, **options: object) -> list[str]:
    adapter = SmilesAdapter(**options)  # type: ignore[arg-type]
    return list(adapter.infer_options([path])["target_columns"])


def test_the_usual_file_of_sider_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "sider.csv", ["smiles", *SIDER], ["C,1,0,1", "CC,0,1,0"])
    data = compose(["data=sider", f"data.path={path}"]).config["data"]
    options = {key: data[key] for key in ("target_columns", "ignore_columns", "task")}
    source = DataSource(adapter="smiles", path=str(path), options=options)
    adapter = source.with_inferred_options(source.files(tmp_path, tmp_path)).spec().make()
    assert [column.name for column in adapter.schema.graph_targets] == SIDER
    dag = read_records(adapter, path, adapter.records(path)).dag
    assert [dag.graph_column(name).tolist() for name in SIDER] == [[1, 0], [0, 1], [1, 0]]


COLUMNS = ["id", "smiles", "SR-a", "SR-b, c", "NR-a", "T", "part", "weight"]
ROWS = ["x1,C,,1,2,300,train,1", "x2,CC,>5,,,310,test,2", "x3,CCC,0.5,1,2,320,val,1"]
USED = {"extra_columns": ["T"], "split_column": "part", "weight_column": "weight"}


@pytest.mark.parametrize(
    ("pattern", "ignored", "expected"),
    [
        ("all", ["id"], ["SR-a", "SR-b, c", "NR-a"]),
        ("all", ["i*", "*R-a"], ["SR-b, c"]),
        ("SR-*", [], ["SR-a", "SR-b, c"]),
        ("*-a", [], ["SR-a", "NR-a"]),
    ],
)
def test_columns_that_fit_and_have_no_other_use(
    pattern: str, ignored: list[str], expected: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "m.csv", COLUMNS, ROWS)
    options = {"target_columns": pattern, "ignore_columns": ignored, "bounded_targets": True}
    assert found(path, **options, **USED) == expected


def test_the_names_of_records_are_no_targets(tmp_path: Path) -> None:
    path = tmp_path / "m.smi"
    path.write_text("C 1\nCC 2\n")
    with pytest.raises(DataError, match=r"no column is left for target_columns=all among 'smil"):
        found(path, target_columns="all")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target_columns": "all"},
            "'id', 'part': no cell there is a number, so target_columns=all cannot take it for a "
            "target. Set data.ignore_columns=['id', 'part'], or list the targets in",
        ),
        ({"target_columns": "SSR*"}, "no column is left for target_columns=SSR* among 'id',"),
        (
            {"target_columns": "all", "ignore_columns": ["idd"]},
            "no column 'idd' among 'id', 'smiles', 'SR-a', 'SR-b, c', 'NR-a', 'T', 'part', "
            "'weight'. Did you mean 'id'? Set data.ignore_columns.",
        ),
    ],
)
def test_what_cannot_be_found(options: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", COLUMNS, ROWS)
    with pytest.raises(DataError, match=re.escape(message)):
        found(path, **options)


def test_text_with_named_classes_may_be_a_target(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", ["smiles", "y", "z"], ["C,yes,1", "CC,no,0"])
    names = {"y": ["no", "yes"]}
    adapter_options = {"target_columns": "all", "task": "classification", "class_names": names}
    assert found(path, **adapter_options) == ["y", "z"]


def test_listed_names_are_taken_as_they_are(tmp_path: Path) -> None:
    """A column may be called `all` or have a `*` in its name."""
    path = write(tmp_path / "m.csv", ["smiles", "all", "IC50*"], ["C,1,2"])
    adapter = SmilesAdapter(target_columns=["all", "IC50*"])
    assert read_records(adapter, path, adapter.records(path)).dag.graph_column(
        "IC50*"
    ).tolist() == [2.0]
    assert found(path, target_columns="all") == ["all", "IC50*"]


def test_contradictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'SR-a' is in target_columns and in ignore_columns"):
        SmilesAdapter(target_columns=["SR-a"], ignore_columns="SR-*")
    path = write(tmp_path / "m.csv", ["smiles", "y"], ["C,1"])
    adapter = SmilesAdapter(target_columns="all")
    with pytest.raises(ConfigError, match=r"the files decide what target_columns=all is"):
        read_records(adapter, path, adapter.records(path))
