"""A molecule in several records, and on both sides of a split."""

from __future__ import annotations

from pathlib import Path

from rdkit import Chem

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.data_card import check_data
from graphfold.datasets.inspection.graph_hash import describe_leak, hash_graphs, repeated_molecules
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.splits.split import Split

#: Records 0, 3 and 5 are one molecule, 1 and 4 another; 2 is the mirror image of 1.
SMILES = ("CCO", "C[C@H](N)O", "C[C@@H](N)O", "OCC", "O[C@H](C)N", "C(O)C", "c1ccccc1")


def read(folder: Path, smiles: tuple[str, ...] = SMILES, **options: bool) -> TypedDAG:
    path = folder / "m.csv"
    path.write_text("\n".join(["smiles", *smiles]) + "\n")
    adapter = SmilesAdapter(**options)
    return read_records(adapter, path, adapter.records(path)).dag


def test_a_leak_is_counted_and_named(tmp_path):
    dag = read(tmp_path)
    leak = describe_leak(
        dag, hash_graphs(dag), Split.of_parts([[0, 1, 2], [3, 4], [5, 6]], "random")
    )
    assert leak is not None
    assert leak.startswith("3 records of val or test hold molecules that train has too")
    assert "model: CCO, C[C@H](N)O. Keep" in leak
    # Together in one part, or in val and test alone, they do no harm.
    assert (
        describe_leak(dag, hash_graphs(dag), Split.of_parts([[0, 3, 5, 2], [1], [4, 6]], "random"))
        is None
    )


def test_the_hash_misses_no_molecule_of_a_corpus(data_root, tmp_path):
    data = DataModule(corpus="esol", root=data_root, cache_dir=tmp_path)
    data.prepare()
    records: dict[str, list[int]] = {}
    for number, smiles in enumerate(data.raw.strings("graph", "smiles")):
        records.setdefault(Chem.CanonSmiles(smiles), []).append(number)
    wanted = sorted(same for same in records.values() if len(same) > 1)
    assert wanted
    assert sorted(repeated_molecules(data.raw)) == wanted


def test_a_data_card_counts_them(tmp_path):
    parts = {"train": "CCO\nCCN\nOCC\n", "val": "CCC\n", "test": "NCC\nC(O)C\nO\n"}
    for part, lines in parts.items():
        (tmp_path / f"{part}.csv").write_text("smiles\n" + lines)
    paths = {part: str(tmp_path / f"{part}.csv") for part in parts}
    settings = {"path": paths, "cache_dir": str(tmp_path / "cache")}
    card = check_data("smiles", None, settings)
    assert (card["repeated_molecules"], card["leaked_molecules"]) == (1, 2)
    del settings["path"]
    card = check_data("smiles", paths["train"], settings)
    assert card["repeated_molecules"] == 1
    assert "leaked_molecules" not in card
