"""Self-loops of the data in GCN, GAT and GATv2, as in PyTorch Geometric; other cells read them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from layers.molecules.geometric_molecules import randomise
from torch import Tensor, nn

from graphfold.batching import Batch, Network, Rounds, build_schedule
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import GATCell, GATv2Cell, GCNCell, GINCell
from graphfold.layers.molecules.attention import GraphAttention

geometric = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")

SIZE, ROUNDS = 8, 2
LENGTH = Column("length", "float32")
SCHEMA = Schema(
    (NodeType("atom", 0, (Column("kind", "int64", size=2),)),),
    relations=(EdgeType("bond", (LENGTH,)),),
)


def graphs(seed: int) -> TypedDAG:
    """Random edges: about a third of the nodes have a self-loop, some nodes nothing else."""
    rng = random.Random(seed)
    builder = GraphBuilder(SCHEMA)
    for size in (1, 3, 6, 6):
        atoms = builder.nodes("atom", size, kind=[rng.randrange(2) for _ in range(size)])
        pairs = {(rng.randrange(size), rng.randrange(size)) for _ in range(2 * size)}
        pairs |= {(node, node) for node in range(size) if rng.random() < 0.3}
        source, target = zip(*sorted(pairs, key=lambda pair: pair[1]), strict=True)
        lengths = [rng.choice([0.5, 1.5, 300.0]) for _ in pairs]
        builder.edges("bond", source, target, length=lengths)
        builder.output(*atoms)
        builder.finish()
    return builder.build()


def edges(dag: TypedDAG) -> tuple[Tensor, Tensor]:
    """[2, num_edges] source and target, and [num_edges, 1] the lengths."""
    bond = dag.relations["bond"]
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), bond.ptr.diff())
    lengths = dag.columns["relation:bond"]["length"].double().unsqueeze(1)
    return torch.stack([bond.index, target]), lengths


def copy(theirs: nn.Module | Tensor, ours: nn.Module | Tensor) -> None:
    if isinstance(theirs, nn.Module) and isinstance(ours, nn.Module):
        theirs.load_state_dict(ours.state_dict())
        return
    assert isinstance(theirs, Tensor)
    assert isinstance(ours, Tensor)
    theirs.data = ours.detach().reshape(theirs.shape).clone()


def pair(name: str) -> tuple[Any, Any]:
    """One of our cells, and PyTorch Geometric's layer with its weights."""
    if name == "gcn":
        cell = GCNCell(SIZE).double()
        randomise(cell)
        layer = geometric.GCNConv(SIZE, SIZE).double()
        copy(layer.lin.weight, cell.linear.weight)
        copy(layer.bias, cell.linear.bias)
        return cell, layer
    kind, _, columns = name.partition(" ")
    bonds = [LENGTH] if columns else []
    made, of = {"gat": (GATCell, "GATConv"), "gatv2": (GATv2Cell, "GATv2Conv")}[kind]
    attention = made(SIZE, bonds, heads=2).double()
    randomise(attention)
    width = {"edge_dim": 1} if columns else {}
    layer = getattr(geometric, of)(SIZE, SIZE // 2, 2, **width).double()
    copy(layer.bias, attention.bias)
    if columns:
        layer.lin_edge.weight.data = encoder_weight(attention)
    if kind == "gat":
        copy(layer.lin, attention.linear)
        copy(layer.att_src, attention.of_source)
        copy(layer.att_dst, attention.of_target)
        if columns:
            copy(layer.att_edge, attention.of_edge)
    else:
        copy(layer.lin_l, attention.source)
        copy(layer.lin_r, attention.target)
        copy(layer.att, attention.attention)
    return attention, layer


def encoder_weight(cell: GraphAttention) -> Tensor:
    """[SIZE, 1] the encoder of lengths, which has no bias here, as a linear layer."""
    assert cell.edge_encoder is not None
    zero, one = (
        cell.edge_encoder({"length": torch.full((1,), value, dtype=torch.float64)}).detach()
        for value in (0.0, 1.0)
    )
    for parameter in cell.edge_encoder.parameters():
        if parameter.dim() == 1:
            parameter.data.zero_()
    return (one - zero).T.contiguous()


NAMES = ["gcn", "gat", "gatv2", "gat with bonds", "gatv2 with bonds"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("run", ["compiled", "eager", "reference"])
def test_self_loops_are_those_of_pytorch_geometric(name: str, share: bool, run: str) -> None:
    cell, layer = pair(name)
    dag = graphs(3)
    passes = [Rounds("bond", ROUNDS)]
    network = Network(SCHEMA, (passes[0], {"atom": cell}), run=run).double()
    table = torch.randn(2, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    table.requires_grad_()
    kind = dag.features("atom")["kind"]
    actual = network(Batch(dag, build_schedule(dag, passes, share=share)), {"atom": table[kind]})
    index, lengths = edges(dag)
    wanted = table[kind]
    for _ in range(ROUNDS):
        more = (lengths,) if "bonds" in name else ()
        wanted = torch.relu(layer(wanted, index, *more))
    torch.testing.assert_close(actual["h"], wanted, rtol=1e-9, atol=1e-9)
    weight = torch.linspace(-1, 1, wanted.numel(), dtype=torch.float64).view_as(wanted)
    leaves = ((table, cell.bias), (table, layer.bias)) if name != "gcn" else ((table,), (table,))
    got, want = (
        torch.autograd.grad((h * weight).sum(), tensors)
        for h, tensors in zip((actual["h"], wanted), leaves, strict=True)
    )
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_a_network_that_adds_no_loops_reads_those_of_the_data() -> None:
    cell = GINCell(SIZE, learn_epsilon=True).double()
    randomise(cell)
    mlp = nn.Sequential(cell.update.inner, nn.ReLU(), cell.update.outer)
    layer = geometric.GINConv(mlp, train_eps=True).double()
    randomise(cell)
    copy(layer.eps, cell.update.epsilon)
    dag = graphs(5)
    passes = [Rounds("bond", 1)]
    network = Network(SCHEMA, (passes[0], {"atom": cell})).double()
    x = torch.randn(dag.num_nodes, SIZE, dtype=torch.float64)
    actual = network(Batch(dag, build_schedule(dag, passes)), {"atom": x})["h"]
    torch.testing.assert_close(actual, torch.relu(layer(x, edges(dag)[0])))


def test_a_node_with_a_loop_is_not_equal_to_one_with_a_neighbour_like_itself() -> None:
    """Both read a node of their kind; one of them is itself."""
    builder = GraphBuilder(SCHEMA)
    atoms = builder.nodes("atom", 3, kind=[0, 0, 0])
    builder.edges("bond", [0, 2, 1], [0, 1, 2], length=[0.5, 0.5, 0.5])
    builder.output(*atoms)
    builder.finish()
    dag = builder.build()
    cell = GCNCell(SIZE).double()
    network = Network(SCHEMA, (Rounds("bond", 1), {"atom": cell})).double()
    x = torch.ones(3, SIZE, dtype=torch.float64)
    shared, alone = (
        network(Batch(dag, build_schedule(dag, network.passes, share=share)), {"atom": x})["h"]
        for share in (True, False)
    )
    torch.testing.assert_close(shared, alone)
