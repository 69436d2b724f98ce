"""Bonds as nodes, and which bonds they read."""

from __future__ import annotations

import pytest

from graphfold.dag import GraphBuilder, TypedDAG, validate
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import RecordError


def molecule(smiles: str) -> TypedDAG:
    adapter = SmilesAdapter(directed_bonds=True)
    builder = GraphBuilder(adapter.schema)
    adapter.parse(Record(1, RecordRow(smiles)), builder)
    dag = builder.build()
    validate(dag)
    return dag


def edges(dag: TypedDAG, relation: str) -> list[tuple[int, int]]:
    """(source, target) of every edge, nodes numbered in the graph."""
    found = dag.relations[relation]
    targets = [n for n, count in enumerate(found.ptr.diff().tolist()) for _ in range(count)]
    return sorted(zip(found.index.tolist(), targets, strict=True))


def test_a_ring_goes_round_in_both_directions():
    dag = molecule("C1CC1")
    pairs = edges(dag, "continues")
    assert len(pairs) == 6
    start = dict(pairs)
    bond = first = pairs[0][0]
    for _ in range(3):
        bond = start[bond]
    assert bond == first


@pytest.mark.parametrize(("first", "second"), [("CC(N)O", "OC(N)C"), ("c1ccncc1C", "Cc1cnccc1")])
def test_neighbours_are_listed_by_what_they_are(first, second):
    def seen(smiles: str) -> list[tuple[int, list[int]]]:
        dag = molecule(smiles)
        element = dag.features("bond")["source_element"].tolist()
        ptr, index = dag.relations["continues"].ptr.tolist(), dag.relations["continues"].index
        num_atoms = len(dag.nodes_of_type("atom"))
        return sorted(
            (
                element[bond - num_atoms],
                [element[other - num_atoms] for other in index[ptr[bond] : ptr[bond + 1]].tolist()],
            )
            for bond in dag.nodes_of_type("bond").tolist()
        )

    assert seen(first) == seen(second)


def test_an_atom_with_too_many_neighbours_is_refused():
    with pytest.raises(RecordError, match="an atom has 101 neighbours; .* 100 are allowed"):
        molecule("*" + "(C)" * 101)
    assert len(molecule("*" + "(C)" * 100).nodes_of_type("bond")) == 200
