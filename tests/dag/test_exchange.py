"""To and from networkx and PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SCHEMA as MIXED
from engine_cells import random_dag

from graphfold.dag import (
    Column,
    EdgeType,
    GraphBuilder,
    NodeType,
    Schema,
    from_networkx,
    from_pyg,
    split,
    to_networkx,
    to_pyg,
)
from graphfold.dag.compare import equal
from graphfold.errors import GraphError, SchemaError

MOLECULE = Schema(
    types=(NodeType("atom", None, (Column("number", "int64", size=119),)),),
    relations=(EdgeType("bond", (Column("order", "int64", size=4),)),),
    graph_targets=(Column("solubility", unit="log mol/L"),),
)


def molecules(targets: tuple[float | None, ...] = (0.5, None)):
    builder = GraphBuilder(MOLECULE, "m.csv")
    for index, target in enumerate(targets):
        atoms = builder.nodes("atom", 3, number=[6, 6, 8], spans=[(0, 1), (1, 2), (2, 3)])
        builder.edges("bond", [0, 1, 1, 2], [1, 0, 2, 1], order=[1, 1, 2, 2])
        builder.output(*atoms)
        builder.finish(line=index + 2, solubility=target)
    return builder.build()


@pytest.mark.parametrize("seed", range(6))
def test_networkx_round_trip_with_absent_slots_and_relations(seed):
    for dag in split(random_dag(3, seed)):
        assert equal(from_networkx(to_networkx(dag), MIXED), dag)


def test_pyg_round_trip_and_edge_index():
    dag = molecules()
    data = to_pyg(dag, "bond")
    assert data.edge_index.shape == (2, 8)
    pairs = set(zip(*data.edge_index[:, :4].tolist(), strict=True))
    assert pairs == {(0, 1), (1, 0), (1, 2), (2, 1)}
    back = from_pyg(data, MOLECULE, "bond")
    assert torch.equal(back.relations["bond"].index, dag.relations["bond"].index)
    assert torch.equal(back.features("atom")["number"], dag.features("atom")["number"])
    assert torch.equal(
        back.columns["relation:bond"]["order"], dag.columns["relation:bond"]["order"]
    )
    assert back.graph_column("solubility").isnan().tolist() == [False, True]
    assert back.origin.tolist() == dag.origin.tolist()


# A number of every dtype, width and place, as a data set of PyTorch Geometric holds them.
SMALL_MOLECULES = Schema(
    types=(NodeType("atom", 0, (Column("x", shape=(2,)), Column("z", "int64", size=119))),),
    relations=(EdgeType("bond", (Column("attr", shape=(3,)),)),),
    node_targets=(Column("charge"),),
    graph_targets=(Column("y", shape=(2,)), Column("energy")),
)


def pyg_molecule(num_atoms: int, **changes: object):
    """A chain as QM9 of PyTorch Geometric has it: floats `x`, codes `z`, `y` of several targets."""
    from torch_geometric.data import Data

    atoms = torch.arange(num_atoms)
    forward = torch.stack([atoms[:-1], atoms[1:]])
    edges = torch.cat([forward, forward.flip(0)], dim=1)
    values = {
        "x": torch.stack([atoms, atoms + 0.5], dim=1),
        "z": 6 + atoms,
        "edge_index": edges,
        "edge_attr": torch.stack([edges[0], edges[1], edges[0] * edges[1]], dim=1).float(),
        "charge": atoms / 10,
        "y": torch.tensor([[num_atoms, -num_atoms]]).float(),
        "energy": torch.tensor([[num_atoms / 2]]),
    }
    return Data(**values | changes)


def test_a_data_set_of_pyg_keeps_every_number_in_its_place():
    from torch_geometric.data import Batch

    sizes = (2, 4, 1, 3)
    molecules = [pyg_molecule(size) for size in sizes]
    dag = from_pyg(Batch.from_data_list(molecules), SMALL_MOLECULES, "bond")
    assert dag.origin.tolist() == [[0, 0, number] for number in range(4)]
    for size, part in zip(sizes, split(dag), strict=True):
        atoms = torch.arange(size)
        assert torch.equal(part.features("atom")["x"], torch.stack([atoms, atoms + 0.5], dim=1))
        assert torch.equal(part.features("atom")["z"], 6 + atoms)
        assert torch.equal(part.node_targets["charge"], atoms / 10)
        assert part.graph_column("y").tolist() == [[size, -size]]
        assert part.graph_column("energy").tolist() == [size / 2]
        assert part.output_index.tolist() == list(range(size))
        bonds = part.relations["bond"]
        target = torch.repeat_interleave(atoms, bonds.ptr.diff())
        pairs = sorted(zip(bonds.index.tolist(), target.tolist(), strict=True))
        chain = [(a, b) for a in range(size) for b in (a - 1, a + 1) if 0 <= b < size]
        assert pairs == chain
        attr = part.columns["relation:bond"]["attr"]
        assert torch.equal(attr, torch.stack([bonds.index, target, bonds.index * target], 1))


@pytest.mark.parametrize(
    "y", [torch.tensor([[3.0, 4.0]]), torch.tensor([3.0, 4.0])], ids=["row", "flat"]
)
def test_targets_of_a_graph_stand_with_or_without_its_dimension(y):
    from torch_geometric.data import Batch

    one = pyg_molecule(2, y=y, energy=1.5)
    assert from_pyg(one, SMALL_MOLECULES, "bond").graph_column("y").tolist() == [[3.0, 4.0]]
    dag = from_pyg(Batch.from_data_list([one, one]), SMALL_MOLECULES, "bond")
    assert dag.graph_column("y").tolist() == [[3.0, 4.0], [3.0, 4.0]]
    assert dag.graph_column("energy").tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.ones(3, 3)}, r"'x' has the shape \[3, 3\], .*\[3, 2\]"),
        ({"x": torch.ones(6)}, r"'x' has the shape \[6\], .*\[6, 2\]"),
        ({"z": torch.ones(3, 2).long()}, r"'z' has the shape \[3, 2\], .*\[3\]"),
        ({"z": torch.tensor([6.0, 6.5, 7.0])}, "'z' is torch.float32 with values that"),
        ({"z": torch.tensor([6, 6, 119])}, "column 'z' of type:atom has codes from 6 to 119"),
        ({"z": ["C", "C", "O"]}, "'z' is a list, but column 'z' of type:atom"),
        ({"edge_attr": torch.ones(4, 2)}, r"'edge_attr' has the shape \[4, 2\], .*\[4, 3\]"),
        ({"edge_attr": torch.ones(2, 3)}, r"'edge_attr' has the shape \[2, 3\], .*\[4, 3\]"),
        ({"y": torch.ones(3)}, r"'y' has the shape \[3\], .*\[1, 2\]"),
        ({"y": torch.ones(3, 2)}, r"'y' has the shape \[3, 2\], .*\[1, 2\]"),
        ({"edge_index": torch.ones(4, 2).long()}, r"'edge_index' .* of the shape \[2, any\]"),
        (
            {"edge_index": torch.tensor([[0, 1, 0, 1], [1, 0, 2, 3]])},
            "'edge_index' names nodes beyond 0 .. 2",
        ),
        ({"edge_index": torch.tensor([[0, 9, 0, 1], [1, 0, 2, 2]])}, "source of relation 'bond' 9"),
        ({"batch": torch.tensor([0, 1, 0])}, "not contiguous|lead|has the shape"),
    ],
)
def test_an_attribute_that_does_not_fit_is_named(changes, message):
    with pytest.raises((SchemaError, GraphError), match=message):
        from_pyg(pyg_molecule(3, **changes), SMALL_MOLECULES, "bond")


def test_nothing_of_a_data_is_lost_without_a_word():
    from torch_geometric.data import Batch, HeteroData

    one = pyg_molecule(3, pos=torch.zeros(3, 3), smiles="CCC", energi=torch.ones(1))
    message = "has 'energi', 'pos', 'smiles', for which there is no column"
    with pytest.raises(SchemaError, match=f"Data {message}"):
        from_pyg(one, SMALL_MOLECULES, "bond")
    with pytest.raises(SchemaError, match=f"DataBatch {message}"):
        from_pyg(Batch.from_data_list([one, one]), SMALL_MOLECULES, "bond")
    ignore = ["pos", "smiles", "energi"]
    assert equal(
        from_pyg(one, SMALL_MOLECULES, "bond", ignore=ignore),
        from_pyg(pyg_molecule(3), SMALL_MOLECULES, "bond"),
    )
    with pytest.raises(SchemaError, match="has 'edge_attr', for which there is no column"):
        from_pyg(pyg_molecule(3), SMALL_MOLECULES)  # the inputs have no such column
    with pytest.raises(SchemaError, match="not a HeteroData. Of HeteroData use from_hetero"):
        from_pyg(HeteroData(), SMALL_MOLECULES, "bond")
    with pytest.raises(SchemaError, match="not a int. Give a Data, or a list of them"):
        from_pyg(3, SMALL_MOLECULES, "bond")
    with pytest.raises(SchemaError, match="no relation 'bnd'"):
        from_pyg(one, SMALL_MOLECULES, "bnd")


def test_a_batch_of_what_to_pyg_wrote_keeps_outputs_spans_and_records():
    from torch_geometric.data import Batch

    schema = Schema((NodeType("node", None),))
    builder = GraphBuilder(schema)
    for length in (2, 3, 1):
        nodes = [builder.node("node", span=(i, i + 1)) for i in range(length)]
        builder.output(builder.node("node", nodes[::-1], span=(0, length)))
        builder.finish(line=length)
    dag = builder.build()
    back = from_pyg(Batch.from_data_list([to_pyg(part) for part in split(dag)]), schema)
    assert equal(back, dag)
    assert equal(from_pyg(to_pyg(dag), schema), dag)


def test_pyg_refuses_what_a_data_cannot_hold():
    strings = Schema((NodeType("node", None, (Column("word", "string"),)),))
    builder = GraphBuilder(strings)
    builder.output(builder.node("node", word="a"))
    builder.finish()
    with pytest.raises(SchemaError, match="'word' of type:node holds strings"):
        to_pyg(builder.build())
    with pytest.raises(SchemaError, match="'word' of type:node holds strings"):
        from_pyg(pyg_molecule(2), strings)
    twice = Schema((NodeType("node", None, (Column("y"),)),), graph_targets=(Column("y"),))
    with pytest.raises(SchemaError, match="'y' of graph needs the attribute 'y'"):
        from_pyg(pyg_molecule(2), twice)
    hidden = Schema((NodeType("node", None),), inputs=EdgeType("inputs", (Column("index"),)))
    with pytest.raises(SchemaError, match="'index' of inputs needs the attribute 'edge_index'"):
        from_pyg(pyg_molecule(2), hidden)
    binary = GraphBuilder(Schema((NodeType("node", None),)))
    leaf = binary.node("node")
    binary.output(binary.node("node", [None, leaf]))
    binary.finish()
    with pytest.raises(SchemaError, match="cannot hold an absent slot"):
        to_pyg(binary.build())
    with pytest.raises(SchemaError, match="holds one node type, but the schema has 3"):
        to_pyg(random_dag(1, 0))


def test_a_path_of_networkx_is_read_by_what_can_only_be_meant():
    import networkx as nx

    schema = Schema((NodeType("atom", 0, (Column("z", "int64"),)),), relations=(EdgeType("bond"),))
    path = nx.path_graph(5)
    nx.set_node_attributes(path, {node: 6 + node for node in path}, "z")
    for graph in (path, nx.MultiGraph(path)):
        dag = from_networkx(graph, schema)
        assert dag.features("atom")["z"].tolist() == [6, 7, 8, 9, 10]
        assert dag.relations["bond"].index.tolist() == [1, 0, 2, 1, 3, 2, 4, 3]
        assert dag.relations["bond"].ptr.tolist() == [0, 1, 3, 5, 7, 8]
        assert dag.output_index.tolist() == [0, 1, 2, 3, 4]
    tree = nx.DiGraph([("b", "root"), ("a", "root")], outputs=["root"])
    dag = from_networkx(tree, Schema((NodeType("node", None),)))
    assert dag.input_index[dag.input_ptr[1] : dag.input_ptr[2]].tolist() == [0, 2]
    assert dag.output_index.tolist() == [1]


def _one_edge(kind: str, node: dict[str, object], edge: dict[str, object], **own: object):
    import networkx as nx

    graph = getattr(nx, kind)(**own)
    graph.add_node("a", **node)
    graph.add_node("b", **node)
    graph.add_edge("a", "b", **edge)
    return graph


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (("Graph", {}, {}), SchemaError, "node 'a' has no 'type'. Set it to one of: leaf, pair"),
        (("Graph", {"type": "lef"}, {}), SchemaError, "node 'a' has the type 'lef'"),
        (("Graph", {"type": "leaf", "inputs": [0]}, {}), SchemaError, "'a' has 'inputs', which"),
        (("DiGraph", {"type": "leaf"}, {}), SchemaError, "'a' - 'b' has no 'kind'. Set it to one"),
        (("Graph", {"type": "leaf"}, {"kind": "nxt"}), SchemaError, "has the kind 'nxt'"),
        (("Graph", {"type": "pair"}, {"kind": "inputs"}), GraphError, "without a direction"),
        (
            ("DiGraph", {"type": "pair"}, {"kind": "inputs", "position": -1}),
            GraphError,
            r"node 'b' have the positions \[-1\]",
        ),
        (("Graph", {"type": "leaf"}, {"weight": 1.0}), SchemaError, "no column of .* 'weight'"),
        (("DiGraph", {"type": "pair"}, {"kind": "inputs"}), SchemaError, "but its type has 2"),
    ],
)
def test_networkx_without_what_is_needed_is_told_in_words(graph, error, message):
    pair = NodeType("pair", 2)
    schema = Schema((NodeType("leaf", 0), pair), relations=(EdgeType("next"),))
    with pytest.raises(error, match=message):
        from_networkx(_one_edge(*graph), schema)


def test_networkx_outputs_and_positions_are_checked():
    import networkx as nx

    schema = Schema((NodeType("node", None),))
    with pytest.raises(GraphError, match="output 'c' is not a node"):
        from_networkx(_one_edge("DiGraph", {}, {}, outputs=["c"]), schema)
    twice = nx.DiGraph()
    twice.add_edge("a", "c", position=0)
    twice.add_edge("b", "c", position=0)
    with pytest.raises(GraphError, match=r"node 'c' have the positions \[0, 0\]"):
        from_networkx(twice, schema)
    with pytest.raises(SchemaError, match="takes a graph of networkx, not a list"):
        from_networkx([(0, 1)], schema)
    with pytest.raises(SchemaError, match="takes one graph, not 2"):
        to_networkx(molecules())
