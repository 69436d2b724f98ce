"""Options of molecules and of tables of records: what they change in the graphs that are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from effects.lab import counts, shown_units
from effects.table import Rows
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from graphfold.dag import Schema
from graphfold.dag.compare import equal
from graphfold.dag.schema import ABOVE, BELOW, bound_column
from graphfold.datasets.molecules.atom_features import find_features
from graphfold.datasets.molecules.reactions import MODES
from graphfold.errors import ConfigError, DataError, RecordError
from graphfold.registry import FEATURE_SETS

ROWS = row = Rows()

TABLE = "smiles,y,kind,w\nCCO,1.5,no,1\nc1ccccc1,-2.5,yes,2\nCC(=O)[O-].[Na+],0.5,no,1\n"


# Columns, of tables of molecules and of any records


def columns(*names: str) -> list[str]:
    """The ids of options that both adapters of tables have."""
    return [f"{adapter}.{name}" for adapter in ("smiles", "table") for name in names]


def table_of(graphs, option: str, text: str = TABLE, **options):
    """The graphs of a table of molecules, by the adapter of the option."""
    adapter = option.partition(".")[0]
    kind = {"records": "smiles", "record_column": "smiles"} if adapter == "table" else {}
    return graphs(adapter, text, "a.csv", **kind, **options)


@row.changes(["table.records", "table.record_column"], "the kind of the records, and their column")
def _(graphs):
    text = "tree,smiles,y\n(S (A a) (B b) (C c)),CCO,1\n(S (A a)),CC,2\n"
    options = {"records": "brackets", "record_column": "tree", "target_columns": ["y"]}
    assert counts(graphs("table", text, "a.csv", **options)) == {"word": 4, "phrase": 2}
    assert counts(table_of(graphs, "table", text, target_columns=["y"])) == {"atom": 5}
    for changed, error, message in (
        ({"records": "table"}, ConfigError, "data.records is table, which is no kind of record"),
        ({"record_column": "trees"}, DataError, "no column 'trees' .* Set data.record_column"),
    ):
        with pytest.raises(error, match=message):
            graphs("table", text, "a.csv", **{**options, **changed})


@row.changes("table.options", "the adapter of the records has these options")
def _(graphs):
    options = {"target_columns": ["y"], "options": {"explicit_hydrogens": True}}
    assert counts(table_of(graphs, "table", "smiles,y\nCO,1\n", **options)) == {"atom": 6}
    with pytest.raises(ConfigError, match="the smiles adapter has no option 'hydrogens'"):
        table_of(graphs, "table", options={"hydrogens": True})


@row.changes("smiles.smiles_column", "the column of the molecules")
def _(graphs):
    renamed = TABLE.replace("smiles", "structure")
    plain = graphs("smiles", TABLE, "a.csv")
    named = graphs("smiles", renamed, "a.csv", smiles_column="structure")
    assert equal(plain, named)
    with pytest.raises(DataError, match="no column 'smiles'"):
        graphs("smiles", renamed, "a.csv")


@row.changes(columns("target_columns"), "these columns are the targets, and no others")
def _(graphs, option):
    for names in (["y"], ["w", "y"]):
        dag = table_of(graphs, option, target_columns=names)
        assert [c.name for c in dag.schema.graph_targets] == names
    assert dag.graph_column("y").tolist() == [1.5, -2.5, 0.5]
    assert dag.graph_column("w").tolist() == [1, 2, 1]


@row.changes(columns("task"), "cells are numbers, or classes")
def _(graphs, option):
    for task, dtype in (("classification", torch.int64), ("regression", torch.float32)):
        more = {"num_classes": 3} if task == "classification" else {}
        dag = table_of(graphs, option, target_columns=["w"], task=task, **more)
        assert dag.graph_column("w").dtype == dtype
    with pytest.raises(RecordError, match="'kind' is 'no', which is not a finite number"):
        table_of(graphs, option, target_columns=["kind"])


@row.changes(columns("num_classes"), "how many classes there are; a cell beyond them is refused")
def _(graphs, option):
    options = {"task": "classification", "target_columns": ["w"]}
    for number in (3, 5):
        dag = table_of(graphs, option, num_classes=number, **options)
        assert dag.schema.graph_targets[0].size == number
    with pytest.raises(RecordError, match="'w' is '2', which is not one of the classes 0 .. 1"):
        table_of(graphs, option, num_classes=2, **options)


@row.changes(columns("class_names"), "the codes of classes: their places in this list")
def _(graphs, option):
    options = {"task": "classification", "target_columns": ["kind"]}
    for names in (["no", "yes"], ["yes", "no"]):
        dag = table_of(graphs, option, class_names={"kind": names}, **options)
        cells = [names[code] for code in dag.graph_column("kind").tolist()]
        assert cells == ["no", "yes", "no"]
    with pytest.raises(RecordError, match="'kind' is 'yes', which is not one of the classes no, m"):
        table_of(graphs, option, class_names={"kind": ["no", "maybe"]}, **options)
    with pytest.raises(ConfigError, match="class_names names 'z', which is no target"):
        table_of(graphs, option, class_names={"z": ["yes", "no"]}, **options)


@row.changes("smiles.positive", "the class that has the code 1, however classes are ordered")
def _(graphs):
    options = {"task": "classification", "target_columns": ["kind"]}
    for positive in ("no", "yes"):
        for names in (["no", "yes"], ["yes", "no"]):
            own = {"class_names": {"kind": names}, "positive": positive, **options}
            codes = graphs("smiles", TABLE, "a.csv", **own).graph_column("kind").tolist()
            assert codes == [cell == positive for cell in ("no", "yes", "no")]
    with pytest.raises(ConfigError, match="positive is 'maybe', but the classes of 'kind' are"):
        graphs("smiles", TABLE, "a.csv", **{**own, "positive": "maybe"})


@row.changes(
    columns("weight_column"), "how often a record counts in training, and no input of the model"
)
def _(graphs, option):
    text = "smiles,y,times\nCCO,1,0.5\nCC,2,0\nC,3,2\n"
    plain = table_of(graphs, option, text, target_columns=["y"])
    dag = table_of(graphs, option, text, target_columns=["y"], weight_column="times")
    assert plain.weights() is None
    assert dag.weights().tolist() == [0.5, 0, 2]
    assert dag.schema.graph_inputs == plain.schema.graph_inputs == ()


@row.changes("smiles.units", "the unit of a target, which the report and the data card name")
def _(graphs):
    dag = graphs("smiles", TABLE, "a.csv", target_columns=["y", "w"], units={"y": "kcal/mol"})
    assert shown_units(dag) == {"y": {"kcal/mol"}, "w": {None}}


@row.changes("smiles.bounded_targets", "cells such as >5 are bounds of the target")
def _(graphs):
    text = "smiles,y\nCCO,>5\nCC,<2\nC,3\n"
    with pytest.raises(RecordError, match="'>5', which is a bound. Set data.bounded_targets=true"):
        graphs("smiles", text, "a.csv", target_columns=["y"])
    dag = graphs("smiles", text, "a.csv", target_columns=["y"], bounded_targets=True)
    assert dag.graph_column("y").tolist() == [5, 2, 3]
    assert dag.graph_column(bound_column("y")).tolist() == [ABOVE, BELOW, 0]


@row.changes(columns("split_column"), "the part of each record, which data.split=given reads")
def _(graphs, option):
    text = "smiles,y,part\nCCO,1,train\nCC,2,test\nC,3,val\n"
    dag = table_of(graphs, option, text, target_columns=["y"], split_column="part")
    assert dag.strings("graph", "part of the split") == ["train", "test", "val"]


# What a molecule becomes


@row.changes("smiles.explicit_hydrogens", "hydrogens are atoms of the graph")
def _(graphs):
    text = "smiles,y\nCO[H],1\n"
    sizes = [
        graphs("smiles", text, "a.csv", explicit_hydrogens=value).num_nodes
        for value in (False, "written", True)
    ]
    assert sizes == [2, 3, 6]


@row.changes("smiles.reaction", "two sides become one graph, whose features have two columns")
def _(graphs):
    text = "smiles,y\n[CH3:1][OH:2]>>[CH2:1]=[O:2].[H][H],1\n"
    for mode in MODES:
        dag = graphs("smiles", text, "a.csv", reaction=mode)
        assert counts(dag) == {"atom": 4}
        change = "change" if "diff" in mode else "other"
        assert f"{change}_charge" in dag.features("atom")
    with pytest.raises(RecordError, match="it is a reaction"):
        graphs("smiles", text, "a.csv")


@row.changes("smiles.directed_bonds", "both directions of a bond are nodes, the atoms stay")
def _(graphs):
    text = "smiles,y\nCCO,1\n"
    plain = graphs("smiles", text, "a.csv")
    directed = graphs("smiles", text, "a.csv", directed_bonds=True)
    assert counts(plain) == {"atom": 3}
    assert counts(directed) == {"atom": 3, "bond": 4}


@row.changes(
    "smiles.fragments", "nodes for parts of the molecule, above its atoms; another cut each"
)
def _(graphs):
    text = "smiles,y\nc1ccccc1CC(=O)NC,1\n"
    found = {
        cut: graphs("smiles", text, "a.csv", fragments=cut)
        for cut in ("none", "rings_and_paths", "brics")
    }
    assert counts(found["none"]) == {"atom": 11}
    for cut in ("rings_and_paths", "brics"):
        assert counts(found[cut])["atom"] == 11
        assert len(found[cut].output_index) == 1
    assert not equal(found["rings_and_paths"], found["brics"])


@row.changes("smiles.features", "which columns atoms and bonds have: those of the set")
def _(graphs):
    for name in FEATURE_SETS.names():
        dag = graphs("smiles", TABLE, "a.csv", features=name)
        assert dag.schema.types[0].features == find_features(name).atom_columns
    widths = {
        len(graphs("smiles", TABLE, "a.csv", features=n).schema.types[0].features)
        for n in ("graphfold", "simple")
    }
    assert len(widths) == 2


@row.changes(
    "smiles.salts", "strip keeps the largest part of a mixture, refuse makes it a bad record"
)
def _(graphs):
    plain = graphs("smiles", TABLE, "a.csv", salts="keep")
    stripped = graphs("smiles", TABLE, "a.csv", salts="strip")
    assert plain.num_nodes - stripped.num_nodes == 1  # the sodium
    assert stripped.strings("graph", "changed_to")[:2] == [None, None]
    with pytest.raises(RecordError, match="part"):
        graphs("smiles", TABLE, "a.csv", salts="refuse")


@row.changes("smiles.standardize", "RDKit's standardisation: parent is the neutral largest part")
def _(graphs):
    found = {}
    for way in ("none", "cleanup", "parent", "tautomer"):
        dag = graphs(
            "smiles",
            "smiles,y\nOC(C)=C.[Na+],1\nCC(=O)[O-],2\n",
            "a.csv",
            standardize=way,
        )
        changed = [None] * 2 if way == "none" else dag.strings("graph", "changed_to")
        found[way] = [text if text is None else Chem.CanonSmiles(text) for text in changed]
    assert found["none"] == [None, None]
    assert found["parent"][1] == "CC(=O)O"
    assert found["cleanup"][1] is None
    assert found["tautomer"][0].startswith("CC(C)=O")
    assert found["parent"][0] == "C=C(C)O"


# Inputs that are computed


@row.changes("smiles.descriptors", "these numbers of the molecule are inputs of the model")
def _(graphs):
    for names in (["rdkit2d"], ["morgan", "torsions"], ["atom_pairs"]):
        dag = graphs("smiles", TABLE, "a.csv", descriptors=names)
        assert inputs(dag.schema) == names
    assert inputs(graphs("smiles", TABLE, "a.csv").schema) == []


@row.changes("smiles.fingerprint_size", "the number of counts of each fingerprint")
def _(graphs):
    for size in (64, 256):
        options = {"descriptors": ["morgan", "atom_pairs"], "fingerprint_size": size}
        dag = graphs("smiles", TABLE, "a.csv", **options)
        assert [dag.graph_column(n).shape for n in options["descriptors"]] == [(3, size)] * 2


@row.changes("smiles.morgan_radius", "how far from their centre the counted substructures reach")
def _(graphs):
    molecule = Chem.MolFromSmiles("CCO")
    for radius in (0, 3):
        options = {"descriptors": ["morgan"], "morgan_radius": radius, "fingerprint_size": 64}
        dag = graphs("smiles", TABLE, "a.csv", **options)
        generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=64)
        expected = generator.GetCountFingerprintAsNumPy(molecule)
        assert np.array_equal(dag.graph_column("morgan")[0].numpy(), expected)


# Targets of atoms and bonds


LISTS = 'smiles;q;o\nCCO;"[0.5, null, -1]";"[1, 2]"\n'.replace(";", "\t").replace('"', "")


@row.changes("smiles.atom_target_columns", "a cell has a value for each atom")
def _(graphs):
    dag = graphs("smiles", LISTS, "a.tsv", atom_target_columns=["q"])
    values = dag.node_targets["q"].tolist()
    assert (values[0], values[2], np.isnan(values[1])) == (0.5, -1, True)
    assert not dag.schema.graph_targets


@row.changes("smiles.bond_target_columns", "a cell has a value for each bond, a node of its own")
def _(graphs):
    dag = graphs("smiles", LISTS, "a.tsv", bond_target_columns=["o"])
    assert counts(dag) == {"atom": 3, "bond_ends": 2}
    assert dag.node_targets["o"][dag.output_index].tolist() == [1, 2]


def inputs(schema: Schema) -> Sequence[str]:
    """The inputs of whole graphs, by name."""
    return [column.name for column in schema.graph_inputs]
