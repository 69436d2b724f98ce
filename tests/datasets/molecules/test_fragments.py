"""Fragments: every atom and bond is covered, trees are trees, and atom order does not matter."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem import BRICS

from graphfold.dag import GraphBuilder, TypedDAG, validate
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.fragments import (
    CUTS,
    KINDS,
    Cut,
    Fragment,
    fragment_trees,
)
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter

#: Chains and branches, salts and lone atoms, rings that are fused, spiro, bridged and caged, metals
#: with dative bonds, a macrocycle, a polymer, hydrogens, wildcards.
SMILES = (
    "C",
    "[Na+].[Cl-]",
    "CC(C)(C)C",
    "CC(=O)Nc1ccc2CCCCc2c1",
    "CC12CCCCC1CCCC2",
    "C1CCC2(CC1)CCCC2",
    "C1CC2CCC1CC2",
    "C12C3C4C1C5C2C3C45",
    "C1C2CC3CC1CC(C2)C3",
    "c1cc2ccc3cccc4ccc(c1)c2c34",
    "N1->[Pt]2(<-N1)<-NCCN->2",
    "C1CCCCCCCCCCCCC1C(=O)OCC",
    "C(C)OCC" * 12,
    "[H][H].[2H]OC",
    "*CC*",
    "CN1C2CCC1CC(C2)OC(=O)C(CO)c3ccccc3",
    "O=C(NCc1ccccc1)c1ccc(cc1)S(=O)(=O)N1CCOCC1",
)
options = pytest.mark.parametrize("option", CUTS)


def cut(smiles: str, option: str = "rings_and_paths") -> tuple[Chem.Mol, Cut]:
    molecule = Chem.MolFromSmiles(smiles)
    return molecule, CUTS[option](molecule, list(Chem.CanonicalRankAtoms(molecule)))


def graph(smiles: str, option: str = "rings_and_paths") -> TypedDAG:
    adapter = SmilesAdapter(fragments=option)  # type: ignore[arg-type]
    builder = GraphBuilder(adapter.schema)
    adapter.parse(Record(1, RecordRow(smiles)), builder)
    dag = builder.build()
    validate(dag)
    return dag


def tree_of(found: Cut) -> nx.DiGraph[int]:
    """The trees, from parents to children."""
    _, children = fragment_trees(found)
    tree: nx.DiGraph[int] = nx.DiGraph()
    tree.add_nodes_from(range(len(found.fragments)))
    tree.add_edges_from((n, child) for n, own in enumerate(children) for child in own)
    return tree


@options
@pytest.mark.parametrize("smiles", SMILES)
def test_every_atom_and_bond_is_covered(smiles, option):
    molecule, found = cut(smiles, option)
    count = molecule.GetNumAtoms()
    assert {atom for f in found.fragments for atom in f.atoms} == set(range(count))
    covered = {bond for f in found.fragments for bond in f.bonds}
    broken = set(range(molecule.GetNumBonds())) - covered
    if option == "rings_and_paths":
        assert not broken
    else:
        ends = {frozenset(pair) for pair, _ in BRICS.FindBRICSBonds(molecule)}
        bonds = [molecule.GetBondWithIdx(i) for i in broken]
        assert {frozenset((b.GetBeginAtomIdx(), b.GetEndAtomIdx())) for b in bonds} == ends
    for fragment in found.fragments:
        for bond in map(molecule.GetBondWithIdx, fragment.bonds):
            assert {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()} <= set(fragment.atoms)


@options
@pytest.mark.parametrize("smiles", SMILES)
def test_there_is_a_tree_over_each_part(smiles, option):
    molecule, found = cut(smiles, option)
    tree = tree_of(found)
    assert nx.is_forest(tree)
    parts = Chem.GetMolFrags(molecule)
    assert nx.number_weakly_connected_components(tree) == len(parts)
    roots, _ = fragment_trees(found)
    assert [n for n, degree in tree.in_degree() if degree == 0] == roots
    for component in nx.weakly_connected_components(tree):
        part = tree.subgraph(component).to_undirected()
        (root,) = component & set(roots)
        assert root in nx.center(part)
    assert all((min(e), max(e)) in found.links for e in tree.edges)


@pytest.mark.parametrize("smiles", SMILES)
def test_the_tree_keeps_what_has_most_in_common(smiles):
    _, found = cut(smiles)
    links: nx.Graph[int] = nx.Graph()
    links.add_nodes_from(range(len(found.fragments)))
    links.add_weighted_edges_from((a, b, common) for (a, b), common in found.links.items())
    best = nx.maximum_spanning_tree(links).size("weight")
    assert sum(found.links[min(e), max(e)] for e in tree_of(found).edges) == best


@pytest.mark.parametrize("smiles", SMILES)
def test_rings_are_rings_and_paths_are_chains(smiles):
    molecule, found = cut(smiles)
    owners = [0] * molecule.GetNumAtoms()
    for fragment in found.fragments:
        part: nx.Graph[int] = nx.Graph()
        part.add_nodes_from(fragment.atoms)
        for bond in map(molecule.GetBondWithIdx, fragment.bonds):
            part.add_edge(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        degrees = sorted(degree for _, degree in part.degree())
        if fragment.kind == "ring":
            assert nx.is_connected(part)
            assert set(degrees) == {2}
        elif fragment.kind == "path" and len(degrees) > 1:
            assert nx.is_connected(part)
            assert degrees[-1] <= 2
            assert degrees[:2] == [1, 1] or set(degrees) == {2}  # around two dative bonds
        else:
            assert degrees == [0]
        for atom in fragment.atoms if fragment.kind != "junction" else ():
            owners[atom] += 1
    junctions = [f.atoms[0] for f in found.fragments if f.kind == "junction"]
    assert sorted(junctions) == [atom for atom, count in enumerate(owners) if count > 2]


def named(fragments: list[Fragment]) -> list[tuple[str, int]]:
    return sorted((f.kind, len(f.atoms)) for f in fragments)


@pytest.mark.parametrize(
    ("smiles", "kinds"),
    [
        ("CCCCC", [("path", 5)]),
        ("CC(C)C", [("junction", 1), *[("path", 2)] * 3]),
        ("c1ccccc1-c1ccccc1", [("path", 2), ("ring", 6), ("ring", 6)]),
        ("c1ccc2ccccc2c1", [("ring", 6), ("ring", 6)]),
        ("C1CCC2(CC1)CCCC2", [("ring", 5), ("ring", 6)]),
        ("CC12CCCCC1CCCC2", [("junction", 1), ("path", 2), ("ring", 6), ("ring", 6)]),
        ("CCOC1CC1", [("path", 4), ("ring", 3)]),
    ],
)
def test_known_cuts(smiles, kinds):
    assert named(cut(smiles)[1].fragments) == kinds


def labelled(dag: TypedDAG) -> nx.DiGraph[int]:
    """The inputs as a graph of networkx, with all features that cells read."""
    found: nx.DiGraph[int] = nx.DiGraph()
    for op_type in dag.schema.types:
        nodes, features = dag.nodes_of_type(op_type.name).tolist(), dag.features(op_type.name)
        rows = zip(*(column.tolist() for column in features.values()), strict=True)
        labels = list(rows) or [()] * len(nodes)
        for node, label in zip(nodes, labels, strict=True):
            found.add_node(node, label=str((op_type.name, label)))
    is_atom = dag.columns["inputs"]["is_atom"].tolist()
    for node, (start, stop) in enumerate(pairwise(dag.input_ptr.tolist())):
        for edge in range(start, stop):
            found.add_edge(int(dag.input_index[edge]), node, label=is_atom[edge])
    return found


@options
@given(smiles=st.sampled_from(SMILES), seed=st.integers(1, 1000))
def test_the_order_of_the_atoms_makes_no_difference(option, smiles, seed):
    (turned,) = Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 1, randomSeed=seed)
    first, second = labelled(graph(smiles, option)), labelled(graph(turned, option))
    hashes = [
        nx.weisfeiler_lehman_graph_hash(g.to_undirected(), "label", "label", iterations=9)
        for g in (first, second)
    ]
    assert hashes[0] == hashes[1]
    if len(first) < 40:
        assert nx.is_isomorphic(
            first,
            second,
            node_match=lambda a, b: a["label"] == b["label"],
            edge_match=lambda a, b: a["label"] == b["label"],
        )


def test_atoms_then_fragments_then_the_molecule():
    dag = graph("CC(=O)[O-].[Na+]")
    assert [t.name for t in dag.schema.types] == ["atom", "fragment", "molecule"]
    assert dag.num_nodes_by_type == [5, 5, 1]
    top = dag.num_nodes - 1
    assert dag.output_index.tolist() == [top]
    assert len(dag.input_index[dag.input_ptr[top] :]) == 2  # one tree for each ion
    assert dag.span[top].tolist() == [0, 5]
    features = dag.features("fragment")
    rows = zip(
        *(features[n].tolist() for n in ("kind", "size", "hetero", "leaving", "links")),
        dag.span[5:10].tolist(),
        strict=True,
    )
    path, junction = KINDS.index("path"), KINDS.index("junction")
    assert sorted(rows) == [
        (path, 1, 1, 0, 0, [4, 5]),
        (path, 2, 0, 2, 1, [0, 2]),
        (path, 2, 1, 2, 1, [1, 3]),
        (path, 2, 1, 2, 1, [1, 4]),
        (junction, 1, 0, 3, 3, [1, 2]),
    ]


def test_what_a_ring_has_in_common():
    columns = graph("C1CCC2(CC1)CCCC2").features("fragment")
    assert columns["overlap"].tolist() == columns["shared"].tolist() == [1, 1]
    columns = graph("c1ccc2CCCCc2c1").features("fragment")
    assert columns["overlap"].tolist() == columns["shared"].tolist() == [2, 2]
    assert sorted(columns["aromatic"].tolist()) == [0, 1]
    assert columns["length"].tolist() == pytest.approx([0.6, 0.6])
