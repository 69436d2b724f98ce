"""Targets of atoms and bonds, their cells and graphs; targets by a pattern that files resolve."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem import rdPartialCharges
from training.tiny_runs import read_json, run, train

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.datasets.files.table_columns import TableTarget
from graphfold.datasets.molecules.drawing import draw_molecule
from graphfold.datasets.molecules.record_table import ListTarget
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.training.config.compose import compose

SMILES = ("CCO", "CC(=O)O", "c1ccccc1O", "CCN", "OCC(O)CO", "CC#N", "CCCl", "COC", "C", "CC(C)O")


def atoms(smiles: str) -> list[Chem.Atom]:
    return list(Chem.MolFromSmiles(smiles).GetAtoms())


def bonds(smiles: str) -> list[Chem.Bond]:
    return list(Chem.MolFromSmiles(smiles).GetBonds())


def gasteiger(smiles: str) -> list[float]:
    molecule = Chem.MolFromSmiles(smiles)
    rdPartialCharges.ComputeGasteigerCharges(molecule)
    return [round(atom.GetDoubleProp("_GasteigerCharge"), 4) for atom in molecule.GetAtoms()]


def bond_lengths(smiles: str) -> list[float]:
    """The lengths of bonds in RDKit's table of atoms' radii, a function of a bond and its ends."""
    table = Chem.GetPeriodicTable()
    radius = {atom.GetIdx(): table.GetRcovalent(atom.GetAtomicNum()) for atom in atoms(smiles)}
    return [
        round(radius[b.GetBeginAtomIdx()] + radius[b.GetEndAtomIdx()], 4) for b in bonds(smiles)
    ]


def write(path: Path, rows: list[tuple[str, str]], name: str = "q") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("smiles", name), *rows])
    return path


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("[1, 2]", "has 2 values for 3 atoms"),
        ("1", "is no list of values"),
        ("[1, 2", "is no list of values"),
        ("[1, [2], 3]", "is no list of values"),
        ("[true, 1, 2]", "is no list of values"),
        ('[1, "x", 2]', "'x', which is not a finite number"),
        ("[1, Infinity, 2]", "which is not a finite number"),
    ],
)
def test_faults(cell, message):
    with pytest.raises(RecordError, match=message.replace("[", r"\[")):
        ListTarget(TableTarget("q")).values(cell, 3)


@pytest.mark.parametrize("directed_bonds", [False, True])
def test_graphs_have_the_values_at_their_atoms(tmp_path, directed_bonds):
    rows = [(s, json.dumps(gasteiger(s))) for s in SMILES]
    path = write(tmp_path / "q.csv", [*rows, ("CC", ""), ("CC", "[null, null]")])
    adapter = SmilesAdapter(atom_target_columns="q", directed_bonds=directed_bonds)
    result = read_records(adapter, path, adapter.records(path))
    values = result.dag.node_targets["q"][result.dag.output_index]
    assert values.tolist() == pytest.approx([q for s in SMILES for q in gasteiger(s)])
    assert [error.line for error in result.skipped] == [12, 13]


@pytest.mark.parametrize("directed_bonds", [False, True])
def test_graphs_have_the_values_at_their_bonds(tmp_path, directed_bonds):
    rows = [(s, json.dumps(list(range(len(bonds(s)))))) for s in SMILES]
    path = write(tmp_path / "q.csv", [*rows, ("CC", "[null]"), ("CC", "[1, 2]")])
    adapter = SmilesAdapter(bond_target_columns="q", directed_bonds=directed_bonds)
    result = read_records(adapter, path, adapter.records(path), on_error="skip")
    dag, kept = result.dag, [s for s in SMILES if s != "C"]  # a molecule without bonds is left out
    values = dag.node_targets["q"]
    assert values[dag.output_index].tolist() == [i for s in kept for i in range(len(bonds(s)))]
    assert int(values.isfinite().sum()) == len(dag.output_index)
    for output, bond in zip(dag.output_index, (b for s in kept for b in bonds(s)), strict=True):
        first = int(dag.node_ptr[dag.batch[output]])
        ends = dag.input_index[dag.input_ptr[output] : dag.input_ptr[output + 1]] - first
        assert ends.tolist() == [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
    assert [error.line for error in result.skipped] == [10, 12, 13]
    assert "has 2 values for 1 bonds" in result.skipped[-1].fault


def test_options_that_move_or_change_atoms_are_refused():
    for option in (
        {"target_columns": "y"},
        {"bounded_targets": True},
        {"fragments": "brics"},
        {"salts": "strip"},
        {"standardize": "parent"},
    ):
        with pytest.raises(ConfigError, match=r"bounded_targets|read together"):
            SmilesAdapter(atom_target_columns="q", **option)
        with pytest.raises(ConfigError, match=r"bounded_targets|read together"):
            SmilesAdapter(bond_target_columns="q", **option)
    with pytest.raises(ConfigError, match=r"bond_target_columns. Leave one"):
        SmilesAdapter(atom_target_columns="q", bond_target_columns="r")


@pytest.mark.parametrize("directed_bonds", [False, True])
@pytest.mark.parametrize(
    ("of", "name"), [("atom", "charge"), ("atom", "order"), ("bond", "order"), ("bond", "charge")]
)
def test_a_target_may_have_the_name_of_a_feature(tmp_path, of, name, directed_bonds):
    """The feature stays, beside it and as it was."""
    measured = atoms if of == "atom" else bonds
    rows = [(s, json.dumps([0.5 + k for k in range(len(measured(s)))])) for s in SMILES if s != "C"]
    path = write(tmp_path / "q.csv", rows, name)
    options = {"directed_bonds": directed_bonds}
    adapter = SmilesAdapter(**{f"{of}_target_columns": name}, **options)
    dag = read_records(adapter, path, adapter.records(path)).dag
    values = dag.node_targets[name][dag.output_index].tolist()
    assert values == [q for _, cell in rows for q in json.loads(cell)]
    path = write(tmp_path / "p.csv", rows, "q")
    plain = SmilesAdapter(**{f"{of}_target_columns": "q"}, **options)
    other = read_records(plain, path, plain.records(path)).dag
    for space, columns in other.columns.items():
        for feature, column in columns.items():
            if feature != "q":
                renamed = feature.replace(name, f"{name}_feature")
                assert dag.columns[space][renamed].equal(column)


def test_a_model_learns_partial_charges_and_predicts_lists(tmp_path):
    path = write(tmp_path / "q.csv", [(s, json.dumps(gasteiger(s))) for s in SMILES * 8])
    folder = train(
        tmp_path / "run",
        "data=smiles",
        "model=gin",
        f"data.path={path}",
        "data.target_columns=[]",
        "data.atom_target_columns=[q]",
        "model.readout._target_=graphfold.layers.OutputReadout",
        "trainer.max_epochs=25",
        "optimizer.lr=0.01",
    )
    assert read_json(folder / "metrics.json")["test/r2"] > 0.9
    output = tmp_path / "predicted.csv"
    new = write(tmp_path / "new.csv", [("OCC", ""), ("C(", "")])
    assert run("predict", folder, new, "--output", output) == 0
    good, bad = csv.DictReader(output.read_text().splitlines())
    assert json.loads(good["q_pred"]) == pytest.approx(gasteiger("OCC"), abs=0.1)
    assert (bad["q_pred"], bool(bad["reason"])) == ("", True)


def test_a_readout_of_molecules_is_refused_with_the_remedy(tmp_path, capsys):
    path = write(tmp_path / "q.csv", [(s, json.dumps(gasteiger(s))) for s in SMILES])
    words = ["data=smiles", f"data.path={path}", "data.target_columns=[]", "logger=none"]
    words += ["data.atom_target_columns=[q]", f"data.cache_dir={tmp_path}/cache"]
    assert run("train", *words, f"hydra.run.dir={tmp_path}/run") == 2
    assert "model.readout._target_=graphfold.layers.OutputReadout" in capsys.readouterr().err


def test_a_model_learns_the_lengths_of_bonds(tmp_path):
    rows = [(s, json.dumps(bond_lengths(s))) for s in SMILES if s != "C"]
    path = write(tmp_path / "q.csv", rows * 8)
    folder = train(
        tmp_path / "run",
        "data=smiles",
        "model=dmpnn",
        f"data.path={path}",
        "data.target_columns=[]",
        "data.bond_target_columns=[q]",
        "model.hidden_size=32",
        "model.readout._target_=graphfold.layers.BondReadout",
        "trainer.max_epochs=25",
        "optimizer.lr=0.01",
    )
    assert read_json(folder / "metrics.json")["test/r2"] > 0.9
    output = tmp_path / "predicted.csv"
    new = write(tmp_path / "new.csv", [("OCCN", ""), ("NCCO", ""), ("C", "")])
    assert run("predict", folder, new, "--output", output) == 0
    *pair, alone = csv.DictReader(output.read_text().splitlines())
    one, other = (json.loads(row["q_pred"]) for row in pair)
    assert one == pytest.approx(bond_lengths("OCCN"), abs=0.1)
    assert one == pytest.approx(other[::-1], abs=1e-4)
    model = graphfold.load(folder)
    (told,) = model.predict(["NCC"])
    notes = [f"{node['prediction']:.3g}" for node in told["nodes"]]
    wanted = draw_molecule("NCC", 3, {(0, 1): notes[0], (1, 2): notes[1]})
    assert model.draw("NCC").svg == wanted != draw_molecule("NCC")
    assert (alone["q_pred"], alone["reason"]) == ("", "the molecule has no bonds to predict")


#: Some columns of MoleculeNet's sider.csv.
SIDER = [
    "Hepatobiliary disorders",
    "Neoplasms benign, malignant and unspecified (incl cysts and polyps)",
    "Injury, poisoning and procedural complications",
]


def write_open(path: Path, columns: list[str], rows: list[str]) -> Path:
    header = ",".join(f'"{name}"' for name in columns)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def found(path: Path, **options: object) -> list[str]:
    adapter = make_adapter("smiles", **options)
    return list(adapter.infer_options([path])["target_columns"])


def test_the_usual_file_of_sider_is_read(tmp_path):
    path = write_open(tmp_path / "sider.csv", ["smiles", *SIDER], ["C,1,0,1", "CC,0,1,0"])
    data = compose(["data=sider", f"data.path={path}"]).config.data
    options = {key: data[key] for key in ("target_columns", "task")}
    source = DataSource(adapter="smiles", path=str(path), options=options)
    adapter = source.with_inferred_options(source.files(tmp_path, tmp_path)).spec.make()
    assert [column.name for column in adapter.schema.graph_targets] == SIDER
    dag = read_records(adapter, path, adapter.records(path)).dag
    assert [dag.graph_column(name).tolist() for name in SIDER] == [[1, 0], [0, 1], [1, 0]]


COLUMNS = ["id", "smiles", "SR-a", "SR-b, c", "NR-a", "T", "part", "weight"]
ROWS = ["x1,C,,1,2,300,train,1", "x2,CC,>5,,,310,test,2", "x3,CCC,0.5,1,2,320,val,1"]
USED = {
    "features_from": {"graph": ["T"]},
    "split_column": "part",
    "weight_column": "weight",
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("all", ["SR-a", "SR-b, c", "NR-a"]),
        ("SR-*", ["SR-a", "SR-b, c"]),
        ("*-a", ["SR-a", "NR-a"]),
    ],
)
def test_columns_that_fit_and_have_no_other_use(pattern, expected, tmp_path):
    path = write_open(tmp_path / "m.csv", COLUMNS[1:], [row.partition(",")[2] for row in ROWS])
    options = {"target_columns": pattern, "bounded_targets": True}
    assert found(path, **options, **USED) == expected


def test_listed_names_are_taken_as_they_are(tmp_path):
    """A column may be called `all` or have a `*` in its name."""
    path = write_open(tmp_path / "m.csv", ["smiles", "all", "IC50*"], ["C,1,2"])
    adapter = SmilesAdapter(target_columns=["all", "IC50*"])
    assert read_records(adapter, path, adapter.records(path)).dag.graph_column(
        "IC50*"
    ).tolist() == [2.0]
    assert found(path, target_columns="all") == ["all", "IC50*"]


def test_an_open_pattern_reads_nothing(tmp_path):
    path = write_open(tmp_path / "m.csv", ["smiles", "y"], ["C,1"])
    adapter = SmilesAdapter(target_columns="all")
    with pytest.raises(ConfigError, match=r"the files decide what target_columns=all is"):
        read_records(adapter, path, adapter.records(path))


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["True", "TRUE", "true", "False", "FALSE"], ["FALSE", "TRUE"]),
        (["no", "Yes", "YES"], ["no", "YES"]),
        (["Active", "inactive"], ["inactive", "Active"]),
        (["active", "Inactive"], ["Inactive", "active"]),
        (["toxic", "non-toxic"], ["non-toxic", "toxic"]),
        (["not soluble", "Soluble"], ["not soluble", "Soluble"]),
        (["nonbinder", "binder"], ["nonbinder", "binder"]),
        (["Stable", "unstable"], ["unstable", "Stable"]),
        (["positive", "Negative"], ["Negative", "positive"]),
        (["+", "-"], ["-", "+"]),
        (["blocked", "allowed"], ["allowed", "blocked"]),
        (["Indole", "phenol", "active", "inactive"], ["active", "inactive", "Indole", "phenol"]),
    ],
)
def test_the_classes_of_text_and_their_order(cells, classes, tmp_path):
    path = write_open(tmp_path / "m.csv", ["smiles", "y"], [f"C,{cell}" for cell in cells])
    adapter = SmilesAdapter(target_columns="y", task="classification")
    options = adapter.infer_options([path])
    assert options == {"class_names": {"y": classes}}
    read = SmilesAdapter(target_columns="y", task="classification", **options)
    codes = read_records(read, path, read.records(path)).dag.graph_column("y").tolist()
    assert [classes[code].casefold() for code in codes] == [cell.casefold() for cell in cells]


def test_classes_that_differ_in_case_alone_are_refused_unless_both_are_named(tmp_path):
    path = write_open(tmp_path / "m.csv", ["smiles", "y"], ["C,R", "CC,r", "CCC,S"])
    adapter = SmilesAdapter(target_columns="y", task="classification")
    with pytest.raises(DataError, match="'R' and 'r' of 'y' differ in case alone. Write them ali"):
        adapter.infer_options([path])
    both = {"target_columns": "y", "task": "classification", "class_names": {"y": ["r", "R", "S"]}}
    adapter = SmilesAdapter(**both)  # type: ignore[arg-type]
    assert read_records(adapter, path, adapter.records(path)).dag.graph_column("y").tolist() == [
        *(1, 0, 2)
    ]


@pytest.mark.parametrize(
    ("positive", "codes"), [(True, [1, 0]), ("FALSE", [0, 1]), ("true", [1, 0])]
)
def test_a_positive_word_of_truth_is_found_in_any_case(positive, codes, tmp_path):
    path = write_open(tmp_path / "m.csv", ["smiles", "y"], ["C,TRUE", "CC,FALSE"])
    options = {"target_columns": "y", "task": "classification", "positive": positive}
    adapter = SmilesAdapter(**options)  # type: ignore[arg-type]
    adapter = SmilesAdapter(**options, **adapter.infer_options([path]))  # type: ignore[arg-type]
    dag = read_records(adapter, path, adapter.records(path)).dag
    assert dag.graph_column("y").tolist() == codes


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("all", ""), ("*", " "), ("all", "Unnamed: 0"), ("*", "__index_level_0__")],
)
def test_the_index_of_a_frame_is_no_target(pattern, name, tmp_path):
    path = write_open(tmp_path / "m.csv", [name, "smiles", "y"], ["0,C,1.5", "1,CC,2"])
    with pytest.warns(UserWarning, match=rf"m\.csv: '{name}' is the index of a DataFrame, so it"):
        assert found(path, target_columns=pattern) == ["y"]
    only = write_open(tmp_path / "n.csv", [name, "smiles"], ["0,C"])
    with pytest.warns(UserWarning, match="index"), pytest.raises(DataError, match="no column is l"):
        found(only, target_columns=pattern)
