"""Features from elsewhere, at the right graphs, nodes and edges; faults with their places."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets.tree_files import corpus_folder, read, write
from pyarrow import parquet
from rdkit import Chem

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, ReadResult, read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import ConfigError, DataError, RecordError

SMILES = ["CCO", "C", "c1ccccc1C(=O)N", "[H][H]", "CC#N", "OC1CC1", "F/C=C/Cl", "[2H]OC(=O)C.[Na+]"]


def adapter_for(path: Path, features: Any, name: str = "smiles", **options: Any) -> Adapter:
    """The adapter of the options that a file decides."""
    options["features_from"] = features
    return make_adapter(name, **{**options, **make_adapter(name, **options).infer_options([path])})


def graphs(path: Path, features: Any, name: str = "smiles", **options: Any) -> TypedDAG:
    return read(adapter_for(path, features, name, **options), path).dag


def table(
    folder: Path, smiles: Sequence[str], name: str = "t.csv", **columns: Sequence[Any]
) -> Path:
    columns = {"smiles": smiles, **columns}
    rows = [columns, *zip(*columns.values(), strict=True)]
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder / name


def molecule(smiles: str, explicit_hydrogens: bool = False) -> Chem.Mol:
    """The molecule as the tests' files of features number its atoms and bonds."""
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = not explicit_hydrogens
    read = Chem.MolFromSmiles(smiles, parameters)
    return Chem.AddHs(read) if explicit_hydrogens else read


def of_atoms(item: Chem.Mol) -> np.ndarray:
    """[num_atoms, 2] element and degree."""
    rows = [(atom.GetAtomicNum(), atom.GetDegree()) for atom in item.GetAtoms()]
    return np.array(rows, dtype=float).reshape(-1, 2)


def of_bonds(item: Chem.Mol) -> np.ndarray:
    """[num_bonds, 2] products of the elements and of the degrees at both ends."""
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in item.GetBonds()]
    atoms = of_atoms(item)
    return np.array([atoms[a] * atoms[b] for a, b in ends]).reshape(-1, 2)


@pytest.mark.parametrize("explicit_hydrogens", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_atoms_and_bonds_in_any_order_have_their_own_features(tmp_path, seed, explicit_hydrogens):
    rng = random.Random(seed)
    smiles = [
        Chem.MolToSmiles(Chem.MolFromSmiles(text), doRandom=True, canonical=False)
        for text in rng.choices(SMILES, k=40)
    ]
    path = table(tmp_path, smiles)
    items = [molecule(text, explicit_hydrogens) for text in smiles]
    np.savez(tmp_path / "atoms.npz", *map(of_atoms, items))
    np.savez(tmp_path / "bonds.npz", *map(of_bonds, items))
    files = {"node": str(tmp_path / "atoms.npz"), "edge": str(tmp_path / "bonds.npz")}
    options = {"explicit_hydrogens": explicit_hydrogens}

    plain = graphs(path, files, **options)
    atoms = plain.features("atom")["node_features"]
    assert torch.equal(atoms[:, 0], plain.features("atom")["element"].float())
    bond = plain.relations["bond"]
    assert torch.equal(atoms[:, 1], bond.ptr.diff().float())
    target = torch.arange(plain.num_nodes).repeat_interleave(bond.ptr.diff())
    edges = plain.columns["relation:bond"]["edge_features"]
    assert torch.equal(edges, atoms[bond.index] * atoms[target])

    directed = graphs(path, files, directed_bonds=True, **options)
    bonds, arrives = directed.features("bond"), directed.relations["arrives"]
    atoms = torch.zeros(directed.num_nodes, 2)
    atoms[directed.nodes_of_type("atom")] = directed.features("atom")["node_features"]
    of_node = torch.zeros(directed.num_nodes, 2)
    target = torch.arange(directed.num_nodes).repeat_interleave(arrives.ptr.diff())
    of_node[arrives.index] = atoms[target]
    leaves, reaches = bonds["source_node_features"], of_node[directed.nodes_of_type("bond")]
    assert torch.equal(leaves[:, 0], bonds["source_element"].float())
    assert torch.equal(bonds["edge_features"], leaves * reaches)


def test_the_files_of_chemprop(data_root):
    """`mol_atom_features` has the element in column 1, `mol_bond_features` conjugation."""
    folder = corpus_folder(data_root, "chemprop_cases")
    levels = {"node": "atom_features", "edge": "bond_features", "graph": "descriptors"}
    files = {level: str(folder / f"mol_{name}.npz") for level, name in levels.items()}
    dag = graphs(folder / "mol.csv", files, directed_bonds=True)
    bonds, atoms = dag.features("bond"), dag.features("atom")
    assert torch.equal(atoms["node_features"][:, 1], atoms["element"].float())
    assert torch.equal(bonds["source_node_features"][:, 1], bonds["source_element"].float())
    assert torch.equal(bonds["edge_features"][:, 1], bonds["conjugated"].float())
    array = np.load(folder / "mol_descriptors.npz")["arr_0"]
    assert dag.graph_column("graph_features").tolist() == array.tolist()


def test_the_hydrogens_that_chemprop_keeps(data_root):
    """`mab_atom_features_descriptors` says C or N of atoms, `mab_bond_...` single or double.

    The atoms of record 6 are in the order of their maps there, which `--reorder-atoms` reads.
    """
    folder = corpus_folder(data_root, "chemprop_cases")
    levels = {"node": "atom", "edge": "bond"}
    files = {k: str(folder / f"mab_{name}_features_descriptors.npz") for k, name in levels.items()}
    dag = graphs(folder / "mab_regression.csv", files, explicit_hydrogens="written")
    atoms, bonds = dag.features("atom"), dag.columns["relation:bond"]
    is_here = dag.batch != 5
    for code in range(2):
        is_one = atoms["element"] == (6, 7)[code]
        assert torch.equal(atoms["node_features"][is_here, code], is_one[is_here].float())
        assert torch.equal(bonds["edge_features"][:, code], (bonds["order"] == code).float())


def test_a_reaction_has_the_atoms_and_bonds_of_its_condensed_graph(tmp_path):
    """Atoms of the reactants, then others of the products; bonds by the atoms that they join."""
    reaction = "[CH3:1][Br:2].[OH-:3]>>[CH3:1][OH:3].[Cl:4][H:5]"
    np.savez(tmp_path / "atoms.npz", np.array([6.0, 35, 8, 17]))
    np.savez(tmp_path / "bonds.npz", np.array([6.0 * 35, 6 * 8]))
    files = {"node": str(tmp_path / "atoms.npz"), "edge": str(tmp_path / "bonds.npz")}
    dag = graphs(table(tmp_path, [reaction]), files, reaction="reac_diff")
    atoms = dag.features("atom")
    assert torch.equal(atoms["node_features"], atoms["element"].float())
    bond, values = dag.relations["bond"], atoms["node_features"]
    target = torch.arange(dag.num_nodes).repeat_interleave(bond.ptr.diff())
    edges = dag.columns["relation:bond"]["edge_features"]
    assert torch.equal(edges, values[bond.index] * values[target])
    assert len(edges) == 4


def test_a_molecule_of_a_structure_has_its_own_order(tmp_path):
    item = Chem.RenumberAtoms(Chem.MolFromSmiles("CCO"), [2, 0, 1])
    adapter = adapter_for(table(tmp_path, ["CO"], z=["[6,8]"]), {"node": ["z"]})
    dag = read_records(adapter, Path(), [adapter.record_of({"smiles": item, "z": [8, 6, 6]})]).dag
    assert dag.features("atom")["z"].tolist() == dag.features("atom")["element"].tolist()


# Kinds of files

VALUES = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]]]
ROWS = [row for record in VALUES for row in record]


def padded() -> np.ndarray:
    array = np.full((2, 4, 2), np.nan)
    array[0, :3], array[1, :1] = VALUES
    return array


def as_npz(path: Path) -> None:
    np.savez(path, *map(np.array, VALUES))


WRITERS = {
    "f.npz": as_npz,
    "f.npy": lambda path: np.save(path, padded()),
    "f.parquet": lambda path: parquet.write_table(pa.table({"node_features": VALUES}), path),
    "f.csv": lambda path: path.write_text(
        "node_features\n" + "".join(f'"{json.dumps(value)}"\n' for value in VALUES)
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_holds_the_same(tmp_path, name):
    WRITERS[name](tmp_path / name)
    dag = graphs(table(tmp_path, ["CCO", "C"]), {"node": str(tmp_path / name)})
    assert dag.features("atom")["node_features"].tolist() == ROWS


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_features_of_graphs(tmp_path, suffix):
    array, file = np.array([[1.0, 2.0], [3.0, 4.0]]), tmp_path / f"f{suffix}"
    if suffix == ".csv":
        file.write_text('graph_features\n"[1,2]"\n"[3,4]"\n')
    else:
        (np.save if suffix == ".npy" else np.savez)(file, array)
    dag = graphs(table(tmp_path, ["CCO", "C"]), {"graph": str(file)})
    assert dag.graph_column("graph_features").tolist() == array.tolist()


def test_columns_are_chosen_and_rows_are_found_by_a_key(tmp_path):
    file = write(tmp_path, 'id,b,a,c\n7,1,"[1]",x\n8,2,"[1,2,3]",y\n', "f.csv")
    path = table(tmp_path, ["CCO", "C", "CCC"], id=[8, 7, 8])
    features = {
        "node": {"file": str(file), "columns": ["a"], "key": "id"},
        "graph": {"file": str(file), "columns": ["b"], "key": "id"},
    }
    dag = graphs(path, features)
    assert dag.features("atom")["a"].tolist() == [1, 2, 3, 1, 1, 2, 3]
    assert dag.graph_column("b").tolist() == [2, 1, 2]


def test_arrays_are_found_by_their_names(tmp_path):
    np.savez(tmp_path / "f.npz", CCO=np.arange(3.0), C=np.ones(1))
    path = table(tmp_path, ["C", "CCO"])
    adapter = adapter_for(path, {"node": {"file": str(tmp_path / "f.npz"), "key": "smiles"}})
    assert read(adapter, path).dag.features("atom")["node_features"].tolist() == [1, 0, 1, 2]
    dag = read_records(adapter, Path(), [adapter.record_of("CCO")]).dag
    assert dag.features("atom")["node_features"].tolist() == [0, 1, 2]


def test_columns_of_the_table_itself(tmp_path):
    path = table(tmp_path, ["CO", "C"], T=[300, "-2e1"], charge=["[0.5,-0.5]", "[0]"])
    dag = graphs(path, {"graph": ["T"], "node": ["charge"]})
    assert dag.graph_column("T").tolist() == [300.0, -20.0]
    assert dag.features("atom")["charge_feature"].tolist() == [0.5, -0.5, 0.0]  # beside RDKit's
    assert dag.features("atom")["charge"].tolist() != [0.5, -0.5, 0.0]


# Trees

SENTENCE = "# sent_id = {}\n# text = {}\n{}\n\n"


def treebank(folder: Path, name: str, sentences: dict[str, str]) -> Path:
    texts = []
    for key, text in sentences.items():
        words = [
            f"{number}\t{word}\t_\tNOUN\t_\t_\t{number - 1}\tdep\t_\t_"
            for number, word in enumerate(text.split(), 1)
        ]
        texts.append(SENTENCE.format(key, text, "\n".join(words)))
    return write(folder, "".join(texts), name)


def lengths(text: str) -> np.ndarray:
    """[num_words, 3] a vector of each word."""
    return np.array([[len(word), 1.0, -len(word)] for word in text.split()])


PARTS = {
    "train": {"a1": "one two three", "a2": "a longer sentence here", "a3": "x"},
    "val": {"b1": "another one"},
    "test": {"c1": "so many more words"},
}


@pytest.mark.parametrize("key", [None, "sent_id"])
def test_a_treebank_has_a_vector_for_each_word(tmp_path, key):
    paths = {part: str(treebank(tmp_path, f"{part}.conllu", PARTS[part])) for part in PARTS}
    for part, sentences in PARTS.items():
        np.savez(tmp_path / f"{part}-states.npz", *map(lengths, sentences.values()))
    every = {key: lengths(text) for part in PARTS.values() for key, text in part.items()}
    np.savez(tmp_path / "all.npz", **dict(reversed(every.items())))
    file = str(tmp_path / ("*-states.npz" if key is None else "all.npz"))
    data = DataModule(
        adapter="conllu", path=paths, cache_dir=tmp_path / "cache", num_workers=0,
        features_from={"node": {"file": file, "key": key}},
    )  # fmt: skip
    data.prepare()
    words = data.raw.strings("type:word", "form")
    values = data.raw.features("word")["node_features"]
    assert values[:, 0].tolist() == [len(str(word)) for word in words]
    scaled = data.encoded("train").features("word")["node_features"]
    train = np.concatenate([lengths(text) for text in PARTS["train"].values()])
    expected = (train[:, 0] - train[:, 0].mean()) / train[:, 0].std()
    torch.testing.assert_close(scaled[:, 0], torch.tensor(expected, dtype=torch.float32))
    assert not scaled[:, 1].any()  # it never varies


def test_brackets_have_a_vector_for_each_word(tmp_path):
    path = write(tmp_path, "(3 (2 good) (1 (2 bad) (2 film)))\n", "t.txt")
    np.savez(tmp_path / "f.npz", np.array([4.0, 3.0, 5.0]))
    dag = graphs(path, {"node": str(tmp_path / "f.npz")}, "brackets", num_classes=5)
    assert dag.features("word")["node_features"].tolist() == [4, 3, 5]
    assert "node_features" not in dag.features("phrase")


def test_worker_processes_get_the_features(tmp_path):
    smiles = ["C" * (1 + number % 5) for number in range(600)]
    path = table(tmp_path, smiles, y=range(600))
    np.savez(
        tmp_path / "f.npz", *(np.full(len(text), number) for number, text in enumerate(smiles))
    )
    data = DataModule(
        adapter="smiles", path=path, target_columns=["y"], cache_dir=tmp_path / "cache",
        features_from={"node": str(tmp_path / "f.npz")}, num_workers=2,
    )  # fmt: skip
    data.prepare()
    values = data.raw.features("atom")["node_features"]
    assert values.tolist() == [n for n, text in enumerate(smiles) for _ in text]


def test_a_stored_copy_is_made_again_when_the_features_change(tmp_path):
    path, file = table(tmp_path, ["C"] * 10, y=range(10)), tmp_path / "f.npy"
    for value in (1.0, 2.0):
        np.save(file, np.full(10, value))
        data = DataModule(
            adapter="smiles", path=path, target_columns=["y"], cache_dir=tmp_path / "cache",
            features_from={"graph": str(file)}, num_workers=0,
        )  # fmt: skip
        data.prepare()
        assert data.raw.graph_column("graph_features").tolist() == [value] * 10


# Faults


def skipped(path: Path, features: Any, **options: Any) -> ReadResult:
    return read(adapter_for(path, features, **options), path, "skip")


def test_another_number_of_atoms_names_the_record(tmp_path):
    np.savez(tmp_path / "f.npz", np.ones(3), np.ones(2), np.ones(1))
    path = table(tmp_path, ["CCO", "CCC", "C"])
    features = {"node": str(tmp_path / "f.npz")}
    message = (
        r"t\.csv:3: the feature 'node_features' \(f\.npz, record 2\) is for 2 atoms, but the "
        r"record has 3 atoms\. Correct the record"
    )
    with pytest.raises(RecordError, match=message):
        graphs(path, features)
    result = skipped(path, features)
    assert result.kept == (0, 2)
    assert result.dag.features("atom")["node_features"].shape == (4,)
    np.savez(tmp_path / "f.npz", np.ones(1), np.ones(2), np.ones(0))
    with pytest.raises(RecordError, match=r"record 1\) is for 1 bond, but the record has 2 bonds"):
        graphs(path, {"edge": str(tmp_path / "f.npz")})


@pytest.mark.parametrize(
    ("number", "message"),
    [(1, "f.npz has 1 records, and .*t.csv has more"), (3, "t.csv has 2 records, and .*f.npz has")],
)
def test_another_number_of_records(tmp_path, number, message):
    np.savez(tmp_path / "f.npz", *[np.ones(1)] * number)
    with pytest.raises(DataError, match=message):
        graphs(table(tmp_path, ["C", "C"]), {"node": str(tmp_path / "f.npz")})


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "the feature 'T' is missing. Fill the cell, or set data.on_error=skip"),
        ("warm", "the feature 'T' is 'warm', which is not a finite number"),
        ("1_000", "the feature 'T' is '1_000', which is not a finite number"),
        ("inf", "the feature 'T' is 'inf', which is not a finite number"),
        ("1e99", "the feature 'T' is '1e99', which is not a finite number"),
        ("[1]", r"the feature 'T' has the shape \[1\] for each graph, but \[\] is needed"),
    ],
)
def test_a_cell_that_is_no_number(tmp_path, cell, message):
    path = table(tmp_path, ["C", "CC"], T=[3, cell])
    with pytest.raises(RecordError, match=rf"t\.csv:3: {message}"):
        graphs(path, {"graph": ["T"]})
    assert skipped(path, {"graph": ["T"]}).kept == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_an_array_with_a_number_that_is_not_finite(tmp_path, bad):
    np.savez(tmp_path / "f.npz", np.ones((1, 2)), np.array([[1, 2], [3, bad]]))
    message = r"t\.csv:3: the feature 'node_features' \(f\.npz, record 2\) is .* at \[1, 1\], which"
    with pytest.raises(RecordError, match=message):
        graphs(table(tmp_path, ["C", "CC"]), {"node": str(tmp_path / "f.npz")})


def test_another_width_than_before(tmp_path):
    np.savez(tmp_path / "f.npz", np.ones((1, 2)), np.ones((1, 3)))
    message = r"record 2\) has the shape \[3\] for each node, but \[2\] is needed"
    with pytest.raises(RecordError, match=message):
        graphs(table(tmp_path, ["C", "C"]), {"node": str(tmp_path / "f.npz")})


def test_a_key_without_a_row_and_one_with_two(tmp_path):
    path = table(tmp_path, ["C", "CC"], id=["a", "b"])
    file = write(tmp_path, "id,z\na,1\n", "f.csv")
    features = {"graph": {"file": str(file), "key": "id"}}
    message = r"t\.csv:3: the id of the record has no features \(f\.csv, 'b'\)"
    with pytest.raises(RecordError, match=message):
        graphs(path, features)
    assert skipped(path, features).kept == (0,)
    file.write_text("id,z\na,1\na,2\n")
    with pytest.raises(DataError, match="f.csv: two rows have the id 'a'. Leave one of them out"):
        graphs(path, features)
    words = treebank(tmp_path, "w.conllu", {"s": "one"})
    with pytest.raises(RecordError, match="the record has no 'id', which data.features_from names"):
        graphs(words, features, "conllu")


def test_a_file_that_is_absent_or_damaged(tmp_path):
    path = table(tmp_path, ["C"])
    with pytest.raises(DataError, match=r"absent\.npz: no such file\. Correct the path"):
        graphs(path, {"node": str(tmp_path / "absent.npz")})
    for name in ("f.npz", "f.npy"):
        file = write(tmp_path, b"no array", name)
        with pytest.raises(DataError, match=rf"{name}: cannot be read as arrays of numbers"):
            graphs(path, {"node": str(file)})
    np.savez(tmp_path / "f.npz", np.array([object()]))
    with pytest.raises(DataError, match=r"f\.npz: cannot be read as arrays of numbers \(Object"):
        graphs(path, {"node": str(tmp_path / "f.npz")})


def test_columns_that_are_absent_or_targets(tmp_path):
    path = table(tmp_path, ["C"], T=[1], y=[1])
    with pytest.raises(DataError, match=r"t\.csv: no column 't' among .* Did you mean 'T'\? Add"):
        graphs(path, {"graph": ["t"]})
    with pytest.raises(ConfigError, match="names the column 'y', which is a target. Leave it out"):
        graphs(path, {"graph": ["y"]}, target_columns=["y"])
    adapter = adapter_for(path, {"graph": ["T"]}, target_columns=["y"]).without_targets()
    with pytest.raises(RecordError, match=r"'C' lacks inputs of the model. Give a dict with the"):
        adapter.record_of("C")


def test_one_file_is_not_in_the_order_of_two_others(tmp_path):
    paths = [table(tmp_path, ["C"], f"{name}.csv", y=[1]) for name in "ab"]
    np.savez(tmp_path / "f.npz", np.ones(1))
    settings = {"adapter": "smiles", "target_columns": ["y"], "cache_dir": tmp_path / "cache"}
    data = DataModule(path=paths, features_from={"node": str(tmp_path / "f.npz")}, **settings)
    with pytest.raises(ConfigError, match=r"order of the records of .*a\.csv, which are not those"):
        data.prepare()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"atom": "f.npz"}, "has 'atom', which is no level. .*the levels are graph, node, edge"),
        ("f.npz", "has 'f.npz', which is no level"),
        ({"node": {"file": "f.npz", "keys": "a"}}, "no option 'keys'. Did you mean 'key'"),
        ({"node": 3}, "data.features_from.node.columns is 3, but it must be"),
        ({"node": {"key": "a"}}, "data.features_from.node names no file. Write node: FILE, or"),
        ({"node": []}, "data.features_from.node names no file"),
    ],
)
def test_an_option_that_cannot_be_read(features, message):
    with pytest.raises(ConfigError, match=message):
        make_adapter("smiles", features_from=features)


def test_levels_that_records_do_not_have(tmp_path):
    with pytest.raises(ConfigError, match="features of the level edge, which are for bonds alone"):
        make_adapter("conllu", features_from={"edge": "f.npz"})
    with pytest.raises(ConfigError, match="salts=strip and standardize change"):
        make_adapter("smiles", features_from={"node": "f.npz"}, salts="strip")
    path = table(tmp_path, ["C.CC"], T=[1])
    assert graphs(path, {"graph": ["T"]}, salts="strip").num_nodes == 2


def test_a_file_of_arrays_has_no_names_of_columns(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((1, 1)))
    path = table(tmp_path, ["C"], id=[1])
    for more in ({"columns": ["a", "b"]}, {"key": "id"}):
        with pytest.raises(ConfigError, match=r"f\.npy has arrays without names of columns"):
            graphs(path, {"node": {"file": str(tmp_path / "f.npy"), **more}})
