"""Notes and contributions stand at their atoms, whatever the order of the record is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rdkit import Chem

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.molecules import drawing as of_molecules
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.inference.drawing import drawing
from graphfold.inference.drawing.marks import Mark
from graphfold.inference.explanation.explain import Contributions, draw
from graphfold.inference.prediction import node_facts

#: Oxygen first, then the carbon at the other end; a ring; a salt whose parts are mixed up.
ORDERS = [("CCO", [2, 0, 1]), ("Oc1ccncc1", [3, 6, 0, 2, 4, 1, 5]), ("CN.Cl", [2, 0, 1])]


def read(smiles: str, order: list[int], **options: Any) -> tuple[TypedDAG, Chem.Mol]:
    molecule = Chem.RenumberAtoms(Chem.MolFromSmiles(smiles), order)
    adapter = SmilesAdapter(**options)
    dag = read_records(adapter, Path("x"), [adapter.record_of(molecule)]).dag
    return dag, Chem.AddHs(molecule) if adapter.explicit_hydrogens else molecule


def symbols(molecule: Chem.Mol) -> list[str]:
    return [atom.GetSymbol() for atom in molecule.GetAtoms()]


@pytest.mark.parametrize("hydrogens", [False, True])
@pytest.mark.parametrize(("smiles", "order"), ORDERS)
def test_notes_stand_at_their_atoms(
    smiles: str, order: list[int], hydrogens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag, molecule = read(smiles, order, explicit_hydrogens=hydrogens)
    drawn: list[Chem.Mol] = []
    monkeypatch.setattr(of_molecules, "_svg", lambda molecule: drawn.append(molecule) or "")
    marks = {node: Mark(name, "", "") for node, name in enumerate(symbols(molecule))}
    drawing._draw_molecule(dag, marks)
    (shown,) = drawn
    assert shown.GetNumAtoms() == molecule.GetNumAtoms()
    assert [atom.GetProp("atomNote") for atom in shown.GetAtoms()] == symbols(shown)


@pytest.mark.parametrize("hydrogens", [False, True])
@pytest.mark.parametrize(("smiles", "order"), ORDERS)
def test_contributions_colour_their_atoms_and_bonds(
    smiles: str, order: list[int], hydrogens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag, molecule = read(smiles, order, explicit_hydrogens=hydrogens)
    numbers = [float(atom.GetAtomicNum()) for atom in molecule.GetAtoms()]
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
    made = Contributions(
        {"y": {"atom": numbers, "bond": [numbers[a] * numbers[b] for a, b in ends]}},
        {"atom": list(node_facts(dag))},
        {"bond": ends},
        dag.strings("graph", "smiles")[0],
        {"y": 0.0},
    )
    drawn: list[tuple[Chem.Mol, Any]] = []
    monkeypatch.setattr(of_molecules, "_colour", lambda value: value)
    monkeypatch.setattr(of_molecules, "_svg", lambda m, **by: drawn.append((m, by)) or "")
    adapter = SimpleNamespace(explicit_hydrogens=hydrogens)
    draw(SimpleNamespace(predictor=SimpleNamespace(adapter=adapter)), made, "y")  # type: ignore[arg-type]
    ((shown, colours),) = drawn
    charge = [atom.GetAtomicNum() for atom in shown.GetAtoms()]
    pairs = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in shown.GetBonds()]
    largest = max(charge[a] * charge[b] for a, b in pairs)
    atoms = {atom: pytest.approx(number / largest) for atom, number in enumerate(charge)}
    bonds = {n: pytest.approx(charge[a] * charge[b] / largest) for n, (a, b) in enumerate(pairs)}
    assert colours["highlightAtomColors"] == atoms
    assert colours["highlightBondColors"] == bonds


def test_what_is_drawn_is_what_the_graph_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = SmilesAdapter(salts="strip")
    dag = read_records(adapter, Path("x"), [adapter.record_of("Cl.OCC")]).dag
    drawn: list[Chem.Mol] = []
    monkeypatch.setattr(of_molecules, "_svg", lambda molecule: drawn.append(molecule) or "")
    drawing._draw_molecule(dag, {node: Mark(str(node), "", "") for node in range(3)})
    assert symbols(drawn[0]) == ["C", "C", "O"]
