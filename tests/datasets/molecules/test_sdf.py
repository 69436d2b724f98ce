"""SDF: structures and properties as rows of a table."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem import rdDepictor

from graphfold.datasets.adapter import read_records
from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules import sdf
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import DataError, RecordError

CHIRAL = "C[C@H](O)c1ccccc1"


def write_sdf(path: Path, records: list[tuple[str, dict[str, str]]]) -> Path:
    """An SDF file of SMILES with properties."""
    text = ""
    for smiles, properties in records:
        molecule = Chem.MolFromSmiles(smiles)
        rdDepictor.Compute2DCoords(molecule)
        title = properties.get("first line", "")
        molecule.SetProp("_Name", title)
        text += Chem.MolToMolBlock(molecule)
        text += "".join(
            f">  <{name}>  (1)\n{value}\n\n"
            for name, value in properties.items()
            if name != "first line"
        )
        text += "$$$$\n"
    packed = path.suffix == ".gz"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


RECORDS = [
    (CHIRAL, {"logS": "-1.5", "note": "first\nsecond", "first line": " a chiral, small one"}),
    ("CCO", {"smiles": "own", "logS": "0.5"}),
    ("[Na+].[Cl-]", {"note": ""}),
]


@pytest.mark.parametrize("name", ["m.sdf", "m.sdf.gz", "m.SDF"])
def test_columns_and_rows(tmp_path, name):
    table = open_table(write_sdf(tmp_path / name, RECORDS))
    assert table.columns == ("smiles", "title", "logS", "note", "smiles_2")
    rows = list(table.rows())
    assert [row.cells for row in rows] == [
        (CHIRAL, "a chiral, small one", "-1.5", "first second", ""),
        ("CCO", "", "0.5", "", "own"),
        ("[Cl-].[Na+]", "", "", "", ""),
    ]
    assert [row.fault for row in rows] == [None] * 3
    assert rows[0].line == 1


def test_targets_come_from_properties(tmp_path):
    path = write_sdf(tmp_path / "m.sdf", RECORDS)
    adapter = SmilesAdapter(target_columns=["logS"])
    result = read_records(adapter, path, adapter.records(path))
    assert result.dag.graph_column("logS").tolist() == [-1.5, 0.5]
    assert result.dag.strings("graph", "smiles") == [CHIRAL, "CCO"]
    assert [error.line for error in result.skipped] == [list(open_table(path).rows())[2].line]


def test_a_structure_that_is_none_costs_its_record_only(tmp_path):
    path = write_sdf(tmp_path / "m.sdf", RECORDS)
    text = path.read_text().replace(" C  ", " Zz ", 1)
    empty = Chem.MolToMolBlock(Chem.Mol())
    path.write_text(f"{text}no structure\n$$$$\n$$$$\n{empty}$$$$\nhalf")
    adapter = SmilesAdapter()
    result = read_records(adapter, path, adapter.records(path), "skip")
    assert result.dag.num_graphs == 2
    assert [error.fault for error in result.skipped] == [
        "RDKit cannot read the structure (Element 'Zz' not found)",
        "RDKit cannot read the structure (RDKit gives no reason)",
        "RDKit cannot read the structure (RDKit gives no reason)",
        "the structure has no atoms",
        "RDKit cannot read the structure (RDKit gives no reason)",
    ]
    with pytest.raises(RecordError, match=r"m\.sdf:1: RDKit cannot read the structure"):
        read_records(adapter, path, adapter.records(path))


def test_the_last_record_needs_no_end(tmp_path):
    path = write_sdf(tmp_path / "m.sdf", RECORDS)
    path.write_text(path.read_text().removesuffix("$$$$\n") + "\n\n")
    assert len(list(open_table(path).rows())) == 3


def test_a_file_without_records(tmp_path):
    path = tmp_path / "m.sdf"
    path.write_text("\n\n")
    with pytest.raises(DataError, match="holds no records"):
        list(open_table(path).rows())


def test_a_property_that_a_record_has_twice_is_a_fault(tmp_path):
    path = write_sdf(tmp_path / "t.sdf", [("CCO", {"logS": "1"}), ("CC", {"logS": "2"})])
    text = path.read_text()
    path.write_text(text.replace(">  <logS>  (1)\n2\n", ">  <logS>\n2\n\n>  <logS>\n3\n"))
    good, bad = open_table(path).rows()
    assert good.fault is None
    assert bad.fault == "the record has the property 'logS' twice"


def test_a_property_called_title_keeps_its_name(tmp_path):
    path = write_sdf(tmp_path / "t.sdf", [("CCO", {"title": "2.5", "first line": "ethanol"})])
    table = open_table(path)
    assert table.columns == ("smiles", "title_2", "title")
    assert [row.cells for row in table.rows()] == [("CCO", "ethanol", "2.5")]


def test_a_huge_structure_never_meets_rdkit(tmp_path, monkeypatch):
    path = tmp_path / "m.sdf"
    path.write_text(Chem.MolToV3KMolBlock(Chem.MolFromSmiles("CCCC")) + "$$$$\n")
    assert next(open_table(path).rows()).cells == ("CCCC", "")
    monkeypatch.setattr(sdf, "MOST_ATOMS", 3)
    monkeypatch.setattr(sdf, "read_mol_block", None)
    fault = next(open_table(path).rows()).fault
    assert fault == "the structure has 4 atoms, and 3 are the most in SDF"


def by_rdkit(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Title and properties of each record, lines joined by blanks."""
    return [
        (
            molecule.GetProp("_Name"),
            {
                name: " ".join(molecule.GetProp(name).split("\n"))
                for name in molecule.GetPropNames()
            },
        )
        for molecule in Chem.SDMolSupplier(str(path))
    ]


@pytest.mark.parametrize(
    ("title", "properties"),
    [
        ("> me", {"a": "> <5 uM> weak", "b": "1"}),
        (">  <me>", {"a": "x\n> <b>\ny", "c": "M  END"}),
        ("M  END", {"a": ">", "a<b": "2", "c>d": "3"}),
        ("$$ me", {"a": "", "b": "> 5\n> 6\n<7"}),
        ("<a> >b", {"a": "1"}),
    ],
)
def test_any_text_is_a_title_and_a_value(title, properties, tmp_path):
    path = tmp_path / "m.sdf"
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")).split("\n", 1)[1]
    items = "".join(f"> <{name}>\n{value}\n\n" for name, value in properties.items())
    path.write_text(f"{title}\n{block}{items}$$$$\n" * 2)
    table = open_table(path)
    rows = [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows()]
    assert [row.fault for row in table.rows()] == [None, None]
    assert [row.pop("smiles") for row in rows] == ["CCO", "CCO"]
    assert [(row.pop("title"), row) for row in rows] == by_rdkit(path)


def test_a_value_with_a_blank_line_is_read_on(tmp_path):
    path = tmp_path / "m.sdf"
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    path.write_text(f"{block}> <a>\nfirst\n\nsecond\n\n> 7\nlost\n\n> <b>\n1\n\n$$$$\n")
    table = open_table(path)
    assert table.columns[2:] == ("a", "b")
    assert next(iter(table.rows())).cells[2:] == ("first second", "1")
