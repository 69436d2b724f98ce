"""Blocks as the model of an experiment: rows in node order, the numbers of the cells, copies."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphfold import blocks as td
from graphfold.batching import Batch, Up
from graphfold.batching.batch import LoweredBatch
from graphfold.blocks.graph_objects import Graphs
from graphfold.blocks.models import neighbourhood, tree_lstm
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG, select
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError, SchemaError
from graphfold.layers import (
    ClassificationHead,
    FeatureEncoder,
    GraphModel,
    LeafLSTMCell,
    NaryTreeLSTMCell,
    NodeReadout,
    PairClassificationHead,
    RegressionHead,
)
from graphfold.loader import GraphDataset
from graphfold.training.loop.checks import can_share

SIZE, WORDS, CLASSES = 5, 7, 3

TREES = Schema(
    types=(
        NodeType("word", 0, (Column("form", "int64", size=WORDS),)),
        NodeType("phrase", 2, (Column("tag", "int64", size=4),)),
    ),
    node_targets=(Column("label", "int64", size=CLASSES),),
)
MOLECULES = Schema(
    types=(NodeType("atom", 0, (Column("kind", "uint8", size=3), Column("mass"))),),
    relations=(EdgeType("bond", (Column("order", shape=(2,)),)),),
    graph_targets=(Column("energy"),),
)


def trees() -> TypedDAG:
    """Two trees whose node numbers differ from the order of computation."""
    builder = GraphBuilder(TREES)
    builder.nodes("phrase", 2, tag=[0, 3], label=[1, 2])
    builder.nodes("word", 3, form=[6, 0, 2], label=[0, 1, 2])
    builder.inputs(0, [1, 2])
    builder.inputs(1, [4, 3])
    builder.output(0)
    builder.finish(line=1)
    builder.nodes("word", 2, form=[5, 1], label=[0, 1])
    builder.nodes("phrase", 2, tag=[1, 1], label=[2, 2])
    builder.inputs(2, [0, None])
    builder.inputs(3, [2, 1])
    builder.output(3)
    builder.finish(line=2)
    return builder.build()


def molecules() -> TypedDAG:
    builder = GraphBuilder(MOLECULES)
    for size in (3, 1):
        builder.nodes("atom", size, kind=list(range(size)), mass=[1.5] * size)
        ends = [(i, i + 1) for i in range(size - 1)] + [(i + 1, i) for i in range(size - 1)]
        order = [[float(i), float(j)] for i, j in ends]
        sources, goals = [i for i, _ in ends], [j for _, j in ends]
        builder.edges("bond", sources, goals, order=order)
        builder.output(*range(size))
        builder.finish(energy=float(size))
    return builder.build()


def model(
    schema: Schema = TREES, root: Any = None, level: str = "node", head: Any = None
) -> td.BlockModel:
    torch.manual_seed(0)
    root = partial(tree_lstm, hidden_size=SIZE) if root is None else root
    return td.BlockModel(schema, root, head or ClassificationHead, level)


def twin(of: td.BlockModel) -> GraphModel:
    """The model of cells with the same weights."""
    made = GraphModel(
        TREES,
        partial(FeatureEncoder, size=SIZE),
        [Up()],
        [
            {
                "word": partial(LeafLSTMCell, hidden_size=SIZE),
                "phrase": partial(NaryTreeLSTMCell, hidden_size=SIZE),
            }
        ],
        NodeReadout,
        ClassificationHead,
    )
    blocks = of.state_dict()
    pairs = {
        "encoder.encoders.word.table": "network.blocks.word_features.encoder.table",
        "encoder.encoders.phrase.table": "network.blocks.phrase_features.encoder.table",
        "network.cells.0.word.0.from_x.weight": "network.blocks.word_state.from_x.weight",
        "network.cells.0.word.0.from_x.bias": "network.blocks.word_state.from_x.bias",
        "network.cells.0.phrase.0.from_x.weight": "network.blocks.phrase_state.from_x.weight",
        "network.cells.0.phrase.0.from_h.weight": "network.blocks.phrase_state.from_h.weight",
        "network.cells.0.phrase.0.from_h.bias": "network.blocks.phrase_state.from_h.bias",
    }
    rest = {name: name for name in blocks if name.startswith("head.")}
    made.load_state_dict({mine: blocks[name] for mine, name in {**pairs, **rest}.items()})
    return made


def loss(of: td.BlockModel | GraphModel, dag: TypedDAG) -> Tensor:
    batch = of.plan(dag)
    losses: Tensor = of.head.losses(of(batch), of.head.target_rows(batch.dag))
    return losses


def test_a_block_model_computes_what_the_cells_do() -> None:
    blocks = model().double()
    cells = twin(blocks).double()
    got, want = loss(blocks, trees()), loss(cells, trees())
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    torch.autograd.backward([got.sum(), want.sum()])
    assert blocks.head.get_parameter("layers.1.weight").grad is not None
    for first, second in zip(
        sorted(p.grad.abs().sum().item() for p in blocks.parameters() if p.grad is not None),
        sorted(p.grad.abs().sum().item() for p in cells.parameters() if p.grad is not None),
        strict=True,
    ):
        assert first == pytest.approx(second, rel=1e-10)


def test_graphs_are_seen_as_nodes() -> None:
    first, second = Graphs(trees())
    assert first.root is first.nodes[0]
    assert [node.type for node in first.nodes] == ["phrase", "phrase", "word", "word", "word"]
    assert [node and node.number for node in first.root.inputs] == [1, 2]
    assert [first.nodes[n]["form"] for n in (2, 3, 4)] == [6, 0, 2]
    assert first.nodes[1]["tag"] == 3
    assert second.nodes[2].inputs == [second.nodes[0], None]
    assert Graphs(trees())[1:][0].root.inputs[0].type == "phrase"  # type: ignore[union-attr]
    with pytest.raises(KeyError):
        first.root["label"]  # a target


def test_edges_are_seen_from_the_node_that_they_reach() -> None:
    chain, single = Graphs(molecules())
    edges = chain.nodes[1].edges("bond")
    assert sorted(edge.node.number for edge in edges if edge.node) == [0, 2]
    assert sorted(edge["order"].tolist() for edge in edges) == [[0.0, 1.0], [2.0, 1.0]]
    assert single.nodes[0].edges("bond") == []
    assert single.nodes[0]["mass"] == 1.5
    with pytest.raises(td.BlockKeyError, match=r"has no edges 'bnd'\. Its graph has: 'bond'\."):
        chain.nodes[0].edges("bnd")
    with pytest.raises(td.BlockValueError, match="a graph has 3 output nodes, so it has no root"):
        _ = chain.root


def test_input_edges_are_seen_with_their_features() -> None:
    schema = Schema(
        (NodeType("word"),), inputs=EdgeType("inputs", (Column("deprel", "int64", size=4),))
    )
    builder = GraphBuilder(schema)
    builder.nodes("word", 3)
    builder.inputs(2, [0, 1], deprel=[3, 1])
    builder.output(2)
    builder.finish()
    (graph,) = Graphs(builder.build())
    assert [(e.node, e["deprel"]) for e in graph.root.edges("inputs")] == [
        (graph.nodes[0], 3),
        (graph.nodes[1], 1),
    ]


def test_rows_of_graphs_are_the_output_of_the_root() -> None:
    root = partial(neighbourhood, hidden_size=SIZE, radius=1)
    made = model(MOLECULES, root, "graph", RegressionHead).double()
    batch = made.plan(molecules())
    rows = made.rows(made.states(batch), batch)
    assert rows.shape == (2, SIZE)
    for graph, row in zip(Graphs(molecules()), rows, strict=True):
        torch.testing.assert_close(made.network.root.eval(graph), row)


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_neighbourhoods_are_those_of_the_formula(radius: int) -> None:
    root = partial(neighbourhood, hidden_size=SIZE, radius=radius)
    made = model(MOLECULES, root, "graph", RegressionHead).double()
    modules, dag = made.network.blocks, molecules()
    bond, atom = dag.relations["bond"], dag.features("atom")
    goal = torch.repeat_interleave(torch.arange(dag.num_nodes), bond.ptr.diff())
    h = modules["atom_features"](atom["kind"], atom["mass"].double())
    for step in range(1, radius + 1):
        end = "" if step == 1 else f"_{step}"
        edge = modules[f"bond_features{end}"](dag.columns["relation:bond"]["order"].double())
        message = modules[f"message{end}"](torch.cat([h[bond.index], edge], 1))
        messages = torch.zeros_like(h).index_add(0, goal, message)
        h = modules[f"combine{end}"](torch.cat([h, messages], 1))
    want = h.new_zeros(2, SIZE).index_add(0, dag.batch, h)
    batch = made.plan(dag)
    torch.testing.assert_close(made.rows(made.states(batch), batch), want)


def test_a_level_needs_its_rows() -> None:
    silent = td.InputTransform(lambda graph: 1.0) >> td.Scalar()
    with pytest.raises(td.BlockTypeError, match="a row for each node needs NodeRows in its blocks"):
        model(root=lambda: silent)
    with pytest.raises(td.BlockTypeError, match=r"reads vectors of floats, but the blocks give .*"):
        model(MOLECULES, lambda: silent, "graph", RegressionHead)
    with pytest.raises(ConfigError, match=r"model\.level is 'nodes'\. Did you mean 'node'\?"):
        model(level="nodes")


def test_pairs_need_pairs() -> None:
    schema = Schema(TREES.types, graph_targets=TREES.node_targets)
    vector = td.InputTransform(lambda graph: [1.0, 2.0]) >> td.Vector(2)
    with pytest.raises(td.BlockTypeError, match="reads pairs of vectors of floats"):
        model(schema, lambda: vector, "graph", PairClassificationHead)
    pair = td.InputTransform(lambda graph: [[1.0], [2.0]]) >> td.Tensor([2, 1])
    made = model(schema, lambda: pair, "graph", PairClassificationHead)
    assert made(made.plan(_as_graphs(trees(), schema))).shape == (2, CLASSES)


def _as_graphs(dag: TypedDAG, schema: Schema) -> TypedDAG:
    dag = copy.copy(dag)
    object.__setattr__(dag, "schema", schema)
    return dag


def nodes_of(pick: Any) -> td.Block:
    """Rows for the nodes that a function picks of a graph."""
    row = td.InputTransform(lambda node: [float(node.number)]) >> td.Vector(1)
    with_node = td.compose(lambda node: td.NodeRows()(row(node), node))
    return td.InputTransform(pick) >> td.Map(td.AllOf(row, with_node)) >> td.Void()


def test_rows_come_in_node_order_whatever_runs_first() -> None:
    made = model(root=lambda: nodes_of(lambda graph: graph.nodes[::-1]))
    batch = made.plan(select(trees(), [1, 0]))
    rows = made.rows(made.states(batch), batch)
    assert rows.view(-1).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_rows_of_output_nodes() -> None:
    made = model(root=lambda: nodes_of(lambda graph: graph.outputs), level="output")
    batch = made.plan(trees())
    assert made.rows(made.states(batch), batch).view(-1).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        (lambda graph: graph.nodes[:-1], r":1: node 4 of the graph has no row\."),
        (lambda graph: [graph.nodes[1], *graph.nodes], r":1: node 1 of the graph has a row too"),
        (lambda graph: graph.nodes[: 3 if len(graph.nodes) < 5 else 5], r":2: node 3 of the graph"),
    ],
)
def test_every_node_needs_one_row(pick: Any, message: str) -> None:
    with pytest.raises(td.BlockValueError, match=message):
        model(root=lambda: nodes_of(pick)).plan(trees())


def test_models_refuse_what_they_cannot_build() -> None:
    schema = Schema((NodeType("word", None),), node_targets=TREES.node_targets)
    with pytest.raises(ConfigError, match="the type 'word' has any number of inputs and 0 feature"):
        model(schema)
    with pytest.raises(ConfigError, match="tree_lstm gives rows of graphs or nodes"):
        model(level="output")
    root = partial(neighbourhood, hidden_size=SIZE)
    with pytest.raises(ConfigError, match="not for each node of 2 types"):
        model(root=root)
    with pytest.raises(SchemaError, match="no relation 'bnd'"):
        model(MOLECULES, partial(root, relation="bnd"), "graph", RegressionHead)


@pytest.mark.parametrize("through", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_compute_the_same(through: Any) -> None:
    made = model().double()
    made.head.eval()
    made.head.get_parameter("layers.1.bias").requires_grad_(False)
    made.network.run = "eager"
    before = torch.get_rng_state()
    other = through(made)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(loss(made, trees()), loss(other, trees()))
    assert [m.training for m in other.modules()] == [m.training for m in made.modules()]
    learned = [p.requires_grad for p in other.parameters()]
    assert learned == [p.requires_grad for p in made.parameters()]
    assert not all(learned)
    assert other.network.run == "eager"
    with torch.no_grad():
        next(other.parameters()).add_(1)
    assert not torch.equal(loss(made, trees()), loss(other, trees()))


def test_a_copy_keeps_its_dtype_under_another_default() -> None:
    made = model().double()
    torch.set_default_dtype(torch.float64)
    try:
        other = copy.deepcopy(made)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(loss(made, trees()), loss(other, trees()))


def test_a_batch_moves_with_both_of_its_graphs() -> None:
    batch = model().plan(trees())
    assert isinstance(batch, LoweredBatch)
    seen: list[Tensor] = []
    moved = batch.map_tensors(lambda tensor: seen.append(tensor) or tensor.clone())  # type: ignore
    assert isinstance(moved, LoweredBatch)
    assert any(tensor is batch.dag.op_type for tensor in seen)
    assert any(tensor is batch.lowered.op_type for tensor in seen)
    assert torch.equal(model()(moved), model()(batch))


def corpus(folder: Path) -> DataModule:
    """Twelve trees in files."""
    lines = ["(1 (0 a) (2 (1 b) (0 c)))", "(2 (1 c) (0 a))", "(0 b)"] * 4
    path = folder / "trees.txt"
    path.write_text("\n".join(lines) + "\n")
    data = DataModule(
        adapter="brackets", path=path, num_classes=3, binarize=True, cache_dir=folder / "cache",
        fractions=(1.0, 0.0, 0.0), batch_size=5,
    )  # fmt: skip
    data.prepare()
    return data


def test_workers_lower_and_ship_the_same_batches(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    made = model(data.spec.schema)
    losses = []
    for workers in (0, 2):
        data.num_workers = workers
        loader = data.loader("train", made.passes, lowering=made.lowering)
        assert isinstance(loader.dataset, GraphDataset)
        assert loader.dataset.lowered is not None
        batches: list[Batch] = list(loader)
        assert [batch.num_graphs for batch in batches] == [5, 5, 2]
        rows = [made.head.losses(made(b), made.head.target_rows(b.dag)) for b in batches]
        losses.append(torch.cat(rows))
    assert torch.equal(*losses)


def test_dropout_of_words_is_none_in_evaluation() -> None:
    made = model(root=partial(tree_lstm, hidden_size=SIZE, dropout=0.5))
    assert not torch.equal(loss(made, trees()), loss(made, trees()))
    made.eval()
    assert torch.equal(loss(made, trees()), loss(made, trees()))
    assert sum(isinstance(m, nn.Dropout) and m.p == 0.5 for m in made.modules()) == 2


def test_its_parts_are_the_modules_and_the_functions() -> None:
    assert can_share(model(), training=True)
    dropped = model(root=partial(tree_lstm, hidden_size=SIZE, dropout=0.5))
    assert can_share(dropped)
    assert not can_share(dropped, training=True)

    def own(schema: Schema, level: str) -> td.Block:
        return neighbourhood(schema, level, SIZE, 1) >> td.Function(lambda x: 2 * x)

    assert not can_share(model(MOLECULES, own, "graph", RegressionHead))
    root = partial(neighbourhood, hidden_size=SIZE, radius=1)
    assert can_share(model(MOLECULES, root, "graph", RegressionHead))
