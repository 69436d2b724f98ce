"""Rounds over several relations: every engine against the reference, and against dense formulas."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dags, empty
from torch import Tensor, nn

import graphfold
from graphfold.batching import Batch, Cell, Children, Network, Pass, Rounds, Up, build_schedule
from graphfold.batching.kernels import segment
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError, SchemaError
from graphfold.layers import LeafCell

SIZE = 3
KIND = (Column("kind", "int64", size=2),)
NAMES = ("bond", "ring", "near")
#: Two types, and relations with columns of the same name, of another shape, and without columns.
SCHEMA = Schema(
    types=(NodeType("atom", 0, KIND), NodeType("group", 0, KIND)),
    relations=(
        EdgeType("bond", (Column("weight"), *KIND)),
        EdgeType("ring", (Column("weight", shape=(2,)),)),
        EdgeType("near"),
    ),
)


class Sums(Cell):
    """h' = tanh(x + a product for each relation), of sums, means and counts."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        super().__init__()
        self.fields, self.names = {"h": SIZE}, names
        self.of = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in names)

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": torch.sin(x)}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        total = x + children.mean("h") - 0.1 * children.sum("h", own=0.5)
        for number, (name, linear) in enumerate(zip(self.names, self.of, strict=True)):
            own = children[name]
            assert own.count.dtype is children.count.dtype
            message = own.mean("h") if number else own.sum("h", own=0.3) + own.previous("h")
            total = total + linear(message) * torch.cos(own.count.to(x.dtype)).unsqueeze(1)
        return {"h": torch.tanh(total)}


class Everything(Sums):
    """Reads in all ways that there are, of one relation and of all."""

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        total = super().forward(x, children)["h"] + children.max("h")
        total = total + children.sum(torch.sin(children.rows("h")) / (1 + self.order(children)))
        for name in self.names:
            own = children[name]
            score = own.rows("h").sum(1) + own.expand(x).mean(1) * (1 + self.order(own).squeeze(1))
            for weight in own.edge.values():
                score = score + (weight if weight.dim() == 1 else weight.sum(1)).to(x.dtype)
            total = total + own.attend("h", score) + own.max("h") * own.count.unsqueeze(1)
            total = total + own.sum("h", torch.sigmoid(score), own=0.2)
            own.rows("h").zero_()  # a copy
        return {"h": torch.tanh(total)}

    def order(self, children: Children) -> Tensor:
        """A number for each edge, from all integers that edges have."""
        numbers = children.position + 2 * children.is_self + 3 * children.child_count
        return numbers.to(torch.float64).unsqueeze(1)


def make_network(kind: type[Sums], item: Pass, with_cell: list[str]) -> Network:
    torch.manual_seed(1)
    names = item.relations
    cells = {name: [kind(names) for _ in range(item.rounds)] for name in with_cell}
    leaves = {name: LeafCell(SIZE, SIZE) for name in ("atom", "group")}
    return Network(SCHEMA, (Up(), leaves), (item, cells)).double()


def outcome(network: Network, dag: TypedDAG, run: str, share: bool) -> list[Tensor]:
    """States, and gradients of the inputs and of all parameters."""
    network.run = run
    table = torch.linspace(-1, 1, 2 * SIZE, dtype=torch.float64).view(2, SIZE).requires_grad_()
    x = {name: table[dag.features(name)["kind"]] for name in ("atom", "group")}
    states = network(Batch(dag, build_schedule(dag, network.passes, share=share)), x)
    h = states["h"]
    loss = (h * torch.linspace(-1, 2, h.numel(), dtype=h.dtype).view_as(h)).sum()
    leaves = [table, *network.parameters()]
    return [h, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def check(network: Network, dag: TypedDAG, ways: tuple[str, ...]) -> None:
    want = outcome(network, dag, "reference", share=False)
    for run, share in itertools.product(ways, (False, True)):
        got = outcome(network, dag, run, share)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("item", [Rounds(NAMES, 1), Rounds(NAMES[1::-1], 3), Rounds(NAMES, 2)])
@settings(max_examples=5)
@given(dag=dags(SCHEMA, max_graphs=3))
def test_sums_and_means_are_compiled(item, dag):
    network = make_network(Sums, item, ["atom", "group"])
    check(network, dag, ("compiled", "eager"))


@pytest.mark.usefixtures("backend")
@pytest.mark.filterwarnings("ignore:Everything is not compiled")
@settings(max_examples=10)
@given(data=st.data())
def test_every_way_to_read_equals_the_reference(data):
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=2, unique=True))
    with_cell = data.draw(st.sampled_from([["atom"], ["group"], ["atom", "group"]]))
    item = Rounds(names, data.draw(st.integers(1, 3)))
    network, dag = make_network(Everything, item, with_cell), data.draw(dags(SCHEMA, max_graphs=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "SMALL", data.draw(st.sampled_from([0, segment.SMALL])))
        check(network, dag, ("auto", "eager"))


@pytest.mark.filterwarnings("ignore:Everything is not compiled")
def test_what_is_not_compiled_says_why():
    network, dag = make_network(Everything, Rounds(NAMES, 1), ["atom"]), graph()
    outcome(network, dag, "auto", share=False)
    assert "it reads the edges of one of several relations" in network.execution["atom"]


def graph() -> TypedDAG:
    """Five atoms with edges along all relations, some between the same nodes, and a self-loop."""
    builder = GraphBuilder(SCHEMA)
    atoms = list(builder.nodes("atom", 5, kind=[0, 1, 0, 1, 1]))
    ends = {"bond": [(0, 1), (1, 0), (1, 2), (4, 2), (3, 3)], "ring": [(1, 0), (2, 0), (1, 0)]}
    ends["near"] = [(4, 0), (0, 4), (3, 4), (1, 0)]
    for name, pairs in ends.items():
        columns = {c.name: column_values(c, len(pairs)) for c in columns_of(name)}
        builder.edges(name, *map(list, zip(*pairs, strict=True)), columns)
    builder.output(*atoms)
    builder.finish()
    return builder.build()


def columns_of(relation: str) -> tuple[Column, ...]:
    return SCHEMA.relation(relation).features


def column_values(column: Column, count: int) -> list[Any]:
    if column.size is not None:
        return [number % column.size for number in range(count)]
    return (
        torch.linspace(-1, 1, count * (column.shape or (1,))[0]).view(count, *column.shape).tolist()
    )


class Relational(Cell):
    """Schlichtkrull et al. (2018), https://arxiv.org/abs/1703.06103, equation 2, with tanh."""

    def __init__(self, names: tuple[str, ...], mean: bool) -> None:
        super().__init__()
        self.fields, self.names, self.mean = {"h": SIZE}, names, mean
        self.of = nn.ModuleList(nn.Linear(SIZE, SIZE, bias=False) for _ in names)
        self.own = nn.Linear(SIZE, SIZE)

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        total = self.own(children.previous("h"))
        for name, linear in zip(self.names, self.of, strict=True):
            total = total + linear(
                children[name].mean("h") if self.mean else children[name].sum("h")
            )
        return {"h": torch.tanh(total)}


@pytest.mark.parametrize("run", ["compiled", "eager", "reference"])
def test_sums_are_products_with_dense_matrices(run):
    dag, num_rounds = graph(), 3
    network = Network(SCHEMA, (Rounds(NAMES, num_rounds), {"atom": Relational(NAMES, False)}))
    network, network.run = network.double(), run
    x = torch.randn(5, SIZE, dtype=torch.float64, requires_grad=True)
    cell = network.cells[0]["atom"][0]
    h = x
    for _ in range(num_rounds):
        total = cell.own(h)
        for name, linear in zip(NAMES, cell.of, strict=True):
            edges = dag.relations[name]
            matrix = torch.zeros(5, 5, dtype=torch.float64)
            target = torch.arange(5).repeat_interleave(edges.ptr.diff())
            matrix.index_put_((target, edges.index), torch.ones(()).double(), accumulate=True)
            total = total + matrix @ h @ linear.weight.T
        h = torch.tanh(total)
    assert_same_gradients(network, network(dag, {"atom": x})["h"], h, x)


def test_means_are_those_of_pytorch_geometric():
    geometric = pytest.importorskip("torch_geometric.nn", reason="needs PyTorch Geometric")
    dag, num_rounds = graph(), 2
    network = Network(SCHEMA, (Rounds(NAMES, num_rounds), {"atom": Relational(NAMES, True)}))
    network = network.double()
    cell = network.cells[0]["atom"][0]
    layer = geometric.RGCNConv(SIZE, SIZE, len(NAMES)).double()
    layer.weight.data = torch.stack([linear.weight.T for linear in cell.of])
    layer.root.data, layer.bias.data = cell.own.weight.T, cell.own.bias.data
    edges = [dag.relations[name] for name in NAMES]
    target = [torch.arange(5).repeat_interleave(own.ptr.diff()) for own in edges]
    edge_index = torch.stack([torch.cat([own.index for own in edges]), torch.cat(target)])
    edge_type = torch.arange(3).repeat_interleave(torch.tensor([len(own) for own in target]))
    x = torch.randn(5, SIZE, dtype=torch.float64, requires_grad=True)
    h = x
    for _ in range(num_rounds):
        h = torch.tanh(layer(h, edge_index, edge_type))
    got = network(dag, {"atom": x})["h"]
    torch.testing.assert_close(got, h, rtol=1e-10, atol=1e-10)
    mine, theirs = (torch.autograd.grad(rows.sin().sum(), x)[0] for rows in (got, h))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def assert_same_gradients(network: Network, got: Tensor, want: Tensor, x: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    leaves = [x, *network.parameters()]
    mine, theirs = (torch.autograd.grad(rows.sin().sum(), leaves) for rows in (got, want))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("share", [False, True])
def test_no_graph_and_no_edge(share):
    network = make_network(Sums, Rounds(NAMES, 2), ["atom", "group"])
    dag, x = empty(SCHEMA), {name: torch.zeros(0, SIZE).double() for name in ("atom", "group")}
    schedule = build_schedule(dag, network.passes, share=share)
    assert network(Batch(dag, schedule), x)["h"].shape == (0, SIZE)
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("atom", kind=0))
    builder.finish()
    check(network, builder.build(), ("compiled", "eager"))


#: For each of two graphs, the edges of bonds and of rings; all with equal columns.
DIFFERENT = {
    "edges": (2, [([(0, 1), (1, 0)], []), ([], [(0, 1), (1, 0)])], 2),
    # The last node reads one that reads two nodes along one relation and one along the other.
    "edges of neighbours": (4, [([(0, 2), (1, 2), (2, 3)], [(0, 2)]),
                                ([(0, 2), (2, 3)], [(0, 2), (1, 2)])], 5),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Everything is not compiled")
@pytest.mark.parametrize("what", DIFFERENT)
def test_nodes_that_differ_in_one_relation_are_not_shared(what):
    num_nodes, graphs, num_rows = DIFFERENT[what]
    builder, item = GraphBuilder(SCHEMA), Rounds(["bond", "ring"], 1)
    for of_graph in graphs:
        builder.output(*builder.nodes("atom", num_nodes, kind=[0] * num_nodes))
        for name, pairs in zip(item.relations, of_graph, strict=True):
            columns = {c.name: torch.ones(len(pairs), *c.shape).tolist() for c in columns_of(name)}
            builder.edges(name, [a for a, _ in pairs], [b for _, b in pairs], columns)
        builder.finish()
    dag = builder.build()
    assert build_schedule(dag, [item], share=True).passes[0].num_rows == num_rows
    check(make_network(Everything, item, ["atom"]), dag, ("auto", "eager"))


@pytest.mark.filterwarnings("ignore:Everything is not compiled")
@pytest.mark.parametrize("kind", [Sums, Everything])
def test_cells_are_checked_over_several_relations(kind):
    columns = (Column("weight", shape=(2,)),)
    cell = kind(("bond", "ring"))
    found = graphfold.check(
        cell, Rounds(["bond", "ring"], 2), input_size=SIZE, edge_columns=columns
    )
    assert found.execution.startswith("compiled" if kind is Sums else "eager")


class Reads(Cell):
    """Calls a function of its children."""

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self.fields, self.rule = {"h": SIZE}, rule

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        return {"h": x + self.rule(children)}


def run_rule(rule: Any, item: Pass, run: str = "auto") -> Tensor:
    states: Mapping[str, Tensor] = Network(SCHEMA, (item, {"atom": Reads(rule)}), run=run)(
        graph(), {"atom": torch.ones(5, SIZE)}
    )
    return states["h"]


@pytest.mark.parametrize("run", ["auto", "eager", "reference"])
@pytest.mark.parametrize(
    ("rule", "item", "message"),
    [
        (lambda c: c["rings"].sum("h"), Rounds(["bond", "ring"], 1),
         r"children\['rings'\] names a relation that the pass does not .*Did you mean 'ring'"),
        (lambda c: c["near"].sum("h"), Rounds(["bond", "ring"], 1), "It follows bond, ring."),
        (lambda c: c["bond"]["ring"].sum("h"), Rounds(["bond", "ring"], 1), "It follows bond."),
        (lambda c: c["inputs"].sum("h"), Up(), "It follows the inputs alone."),
        (lambda c: c.sum(c.edge["weight"]), Rounds(["bond", "ring"], 1),
         r"columns of one relation, .* Use children\['bond'\].edge."),
    ],
)  # fmt: skip
def test_what_a_pass_does_not_follow_is_refused(rule, item, message, run):
    with pytest.raises(SchemaError, match=message):
        run_rule(rule, item, run)


@pytest.mark.parametrize("run", ["compiled", "eager", "reference"])
@pytest.mark.parametrize("item", [Rounds("near", 2), Rounds(["near"], 2)])
def test_one_relation_is_all_children(item, run):
    assert item == Rounds("near", 2)
    by_name = run_rule(lambda c: c["near"].sum(c["near"].rows("h")), item, run)
    assert torch.equal(by_name, run_rule(lambda c: c.sum(c.rows("h")), item, run))


def test_passes_name_relations_once():
    with pytest.raises(ConfigError, match=r"the relations \[\]. Name at least one"):
        Rounds([], 2)
    with pytest.raises(ConfigError, match=r"\['bond', 'bond'\].* each of them once"):
        Rounds(["bond", "bond"], 2)
    assert len({Rounds(["bond", "ring"], 2), Rounds(("bond", "ring"), 2)}) == 1


def test_an_unknown_relation_is_refused_before_any_graph():
    with pytest.raises(SchemaError, match="no relation 'rings'"):
        Network(SCHEMA, (Rounds(["bond", "rings"], 1), Sums()))
    with pytest.raises(SchemaError, match="no relation 'rings'"):
        build_schedule(graph(), [Rounds(["bond", "rings"], 1)])


class Encoding(Sums):
    """Encodes the edges of a relation."""

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {"weight": edge["weight"] + 1}


def test_tables_of_several_relations_are_refused():
    with pytest.raises(ConfigError, match=r"before_edges, .* from children\['bond'\].edge"):
        Network(SCHEMA, (Rounds(NAMES, 1), Encoding()))


def test_moving_a_schedule_moves_the_plans_of_relations():
    plan = build_schedule(graph(), [Rounds(NAMES, 2)]).to("meta").unrolled[0].plan
    assert tuple(plan.by_relation) == NAMES
    moved = [plan.relation, *(own.child_row for own in plan.by_relation.values())]
    assert {tensor.device.type for tensor in moved} == {"meta"}
    assert all(own.host.child_row.is_cpu for own in plan.by_relation.values())


def test_reports_name_the_relations():
    item = Rounds(["bond", "near"], 2)
    report = build_schedule(graph(), [item]).report([item])
    assert "Rounds(bond, near)" in str(report)
