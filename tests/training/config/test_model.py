"""What the data decide in the config of a model: degrees, and whether graphs have roots."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from training.one_step import new_loop
from training.tiny_runs import write_corpora

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.data_module import DataModule
from graphfold.errors import SchemaError
from graphfold.layers import RegressionHead
from graphfold.layers.virtual_node import VirtualNode
from graphfold.training.config.build_model import count_roots, fill_degrees, mean_log_degree


def star() -> TypedDAG:
    """An atom with three neighbours, beside a graph of one atom."""
    atom = NodeType("atom", 0, (Column("symbol", "int64", size=2),))
    builder = GraphBuilder(Schema((atom,), relations=(EdgeType("bond"),)))
    builder.nodes("atom", 4)
    builder.edges("bond", [0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0])
    builder.output(0)
    builder.finish()
    builder.output(builder.node("atom"))
    builder.finish()
    return builder.build()


def config() -> dict:
    cells = [{"atom": {"mean_log_degree": "auto"}, "virtual": {}}, {"atom": {"mean_log_degree": 2}}]
    passes = [{"relation": "bond", "rounds": 2}] * 2
    return {"cells": cells, "passes": passes}


def test_auto_becomes_the_mean_of_the_logarithms():
    given = config()
    before = given["cells"]
    fill_degrees(given, star)
    want = (math.log(4) + 3 * math.log(2) + math.log(1)) / 5
    assert given["cells"][0]["atom"]["mean_log_degree"] == pytest.approx(want)
    assert given["cells"][1] == {"atom": {"mean_log_degree": 2}}
    assert before[0]["atom"] == {"mean_log_degree": "auto"}  # that of the caller stays


def test_a_virtual_node_is_a_neighbour():
    given = config()
    fill_degrees(given, star, VirtualNode("bond"))
    want = (math.log(5) + 3 * math.log(3) + math.log(2)) / 5
    assert given["cells"][0]["atom"]["mean_log_degree"] == pytest.approx(want)


def test_a_type_without_nodes_and_an_unknown_relation():
    dag = star()
    assert mean_log_degree(dag, None, "atom") == 0
    with pytest.raises(SchemaError, match="no relation 'bonds'"):
        mean_log_degree(dag, "bonds", "atom")


MOLECULES = {
    "pairs of atoms": ["C[NH3+]"] * 16,
    "single atoms": ["C", "N"] * 8,
    "one or two atoms": ["C", "CN"] * 8,
    "more": ["CCO", "CN"] * 8,
}


@pytest.mark.parametrize("options", [{}, {"directed_bonds": True}])
@pytest.mark.parametrize("case", MOLECULES)
def test_atoms_are_no_roots(case: str, options: dict[str, bool], tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "smiles,y\n" + "".join(f"{text},{n}\n" for n, text in enumerate(MOLECULES[case]))
    )
    settings = {"target_columns": "y", "cache_dir": tmp_path / "cache", **options}
    data = DataModule(adapter="smiles", path=path, **settings)
    data.prepare()
    assert count_roots(data) == 0


@pytest.mark.parametrize("model", ["block_neighbourhood", "gin"])
def test_molecules_of_two_atoms_are_no_pairs(model: str, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\n" + "".join(f"C[NH3+],{n}\n" for n in range(16)))
    loop, _ = new_loop(
        "data=smiles", f"model={model}", f"data.path={path}", "data.target_columns=y"
    )
    assert type(loop.model.head) is RegressionHead


def test_trees_have_roots(tmp_path: Path) -> None:
    corpora = write_corpora(tmp_path)
    for name, count in (("sick", 2), ("sst", 1)):
        data = DataModule(corpus=name, root=corpora, cache_dir=tmp_path / "cache")
        data.prepare()
        assert count_roots(data) == count
