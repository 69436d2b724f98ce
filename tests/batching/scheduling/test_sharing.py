"""Sharing: equal nodes are found, computed once, and change neither values nor gradients."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from engine_cells import SIZE, MessageCell, PairCell, PhraseCell, WordCell
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from graphfold.batching import Batch, Cell, Down, Network, Rounds, Up, build_schedule
from graphfold.batching.kernels.row_numbers import Classes
from graphfold.batching.scheduling.deduplicate import deduplicate
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, collate
from graphfold.errors import EngineError

NUM_WORDS = 3
SCHEMA = Schema(
    types=(
        NodeType("word", 0, (Column("code", "int64", size=NUM_WORDS),)),
        NodeType("phrase", None),
        NodeType("pair", 2, (Column("mark", "float32", (2,)), Column("flag", "bool"))),
    ),
    inputs=EdgeType("inputs", (Column("weight", "float64"),)),
    relations=(EdgeType("next"),),
)


def random_dag(num_graphs, seed, size=6):
    """Graphs over few words, marks and weights, so that much is alike."""
    rng = random.Random(seed)
    builder = GraphBuilder(SCHEMA)
    for _ in range(num_graphs):
        nodes = [builder.node("word", code=rng.randrange(NUM_WORDS)) for _ in range(3)]
        for _ in range(rng.randint(0, size)):
            if rng.random() < 0.5:
                inputs = [rng.choice([*nodes[-3:], None]), rng.choice(nodes)]
                mark = (rng.choice([0.0, 1.0]), float("nan"))
                nodes.append(builder.node("pair", mark=mark, flag=rng.random() < 0.5))
            else:
                inputs = [rng.choice(nodes) for _ in range(rng.randint(1, 3))]
                nodes.append(builder.node("phrase"))
            builder.inputs(
                nodes[-1],
                inputs,
                weight=[None if i is None else rng.choice([0.5, 2]) for i in inputs],
            )
        ends = [rng.choice(nodes) for _ in range(6)]
        builder.edges("next", ends[:3], ends[3:])
        builder.output(nodes[-1])
        builder.finish()
    return builder.build()


def classes_up(dag) -> Classes:
    """Which nodes are equal on the way up."""
    return deduplicate(dag, [Up()]).final


def structures(dag):
    """A text for each node; equal texts mean equal nodes."""
    number = [0] * len(SCHEMA.types)
    described: list[str] = []
    for node in range(dag.num_nodes):
        op_type = int(dag.op_type[node])
        columns = dag.features(SCHEMA.types[op_type].name)
        own = [str(column[number[op_type]].tolist()) for column in columns.values()]
        number[op_type] += 1
        edges = range(int(dag.input_ptr[node]), int(dag.input_ptr[node + 1]))
        inputs = [(int(dag.input_index[e]), dag.columns["inputs"]["weight"][e]) for e in edges]
        below = [f"{w}:{described[i] if i >= 0 else None}" for i, w in inputs]
        described.append(f"{op_type}{own}({','.join(below)})")
    return described


class Features(nn.Module):
    """x as a function of the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(NUM_WORDS, SIZE))
        self.phrase = nn.Parameter(torch.randn(1, SIZE))
        self.pair = nn.Linear(2, SIZE)

    def forward(self, dag):
        pair = dag.features("pair")
        marks = torch.stack([pair["mark"][:, 0], pair["flag"]], 1).to(self.table)
        counts = dict(zip(("word", "phrase", "pair"), dag.num_nodes_by_type, strict=True))
        return {
            "word": self.table[dag.features("word")["code"]],
            "phrase": self.phrase.expand(counts["phrase"], -1),
            "pair": self.pair(marks),
        }


def tree_cells():
    return {"word": WordCell(), "phrase": PhraseCell(), "pair": PairCell()}


PASSES = {
    "up": [Up()],
    "up_rounds": [Up(), Rounds("next", 2)],
    "up_up": [Up(), Up()],
    "up_down": [Up(), Down()],
    "up_rounds_up": [Up(), Rounds("next", 1), Up()],
    "rounds_up": [Rounds("next", 2), Up()],
    "up_down_rounds": [Up(), Down(), Rounds("next", 2)],
}


class DownCell(Cell):
    reads = ("d",)

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"d": SIZE}
        self.linear = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x, children):
        joined = torch.cat([children.sum("d"), children.previous("h")], 1)
        return {"d": self.linear(joined).tanh()}


class AgainCell(Cell):
    """Reads what a pass before has written."""

    reads = ("g",)

    def __init__(self, before: str) -> None:
        super().__init__()
        self.fields = {"g": SIZE}
        self.linear = nn.Linear(2 * SIZE, SIZE)
        self.before_field = before

    def forward(self, x, children):
        joined = torch.cat([children.sum("g"), children.previous(self.before_field)], 1)
        return {"g": self.linear(joined).tanh() + x}

    def after(self, state):
        return {"again": 2 * state["g"]}


def cells_for(item, index, first):
    if isinstance(item, Rounds):
        return {name: MessageCell() for name in ("word", "phrase", "pair")}
    if isinstance(item, Down):
        return {name: DownCell() for name in ("word", "phrase", "pair")}
    if index:
        before = "m" if isinstance(first, Rounds) else "h"
        return {name: AgainCell(before) for name in ("word", "phrase", "pair")}
    return tree_cells()


@functools.cache
def model_of(name):
    """The features and the network of some passes, compiled once for all graphs."""
    torch.manual_seed(0)
    passes = PASSES[name]
    cells = [cells_for(item, index, passes[0]) for index, item in enumerate(passes)]
    return Features().double(), Network(SCHEMA, *zip(passes, cells, strict=True)).double()


def results(name, dag, way, share):
    """States, and the gradients of all parameters, under a loss that treats every node apart."""
    features, network = model_of(name)
    passes, network.run = network.passes, way
    features.zero_grad()
    network.zero_grad()
    batch = Batch(dag, build_schedule(dag, passes, share=share))
    states = network(batch, features(dag))
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=torch.float64)
    for name in states:
        value = states[name]
        weight = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        loss = loss + (value * weight).sum() + (states.at(name, dag.output_index) ** 2).sum()
    loss.backward()
    outcome = {name: states[name].detach() for name in states}
    parameters = {**dict(features.named_parameters()), **dict(network.named_parameters())}
    return outcome | {name: parameter.grad for name, parameter in parameters.items()}


@pytest.mark.parametrize("seed", range(4))
def test_equal_nodes_are_those_that_are_written_alike(seed):
    dag = random_dag(4, seed)
    texts = structures(dag)
    classes = classes_up(dag)
    first = [texts.index(text) for text in texts]
    assert classes.representative.tolist() == sorted(set(first))
    assert classes.first.tolist() == first


@pytest.mark.parametrize("way", ["auto", "eager"])
@pytest.mark.parametrize("name", PASSES)
def test_sharing_changes_neither_values_nor_gradients(way, name):
    dag = random_dag(5, 0)
    want = results(name, dag, "reference", share=False)
    got = results(name, dag, way, share=True)
    assert got.keys() == want.keys()
    for key, value in want.items():
        torch.testing.assert_close(got[key], value, msg=lambda text, key=key: f"{key}: {text}")


@settings(max_examples=10)
@given(name=st.sampled_from(sorted(PASSES)), seed=st.integers(0, 999), size=st.integers(0, 6))
def test_the_quotient_gives_the_same_over_all_passes(name, seed, size):
    """Trees that are there twice, and others, so that classes have members in several graphs."""
    dag = collate([random_dag(3, seed, size), random_dag(2, seed + 1, size)] * 2)
    got, want = (results(name, dag, "auto", share) for share in (True, False))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("policy", ["depth", "agenda", "critical_path", "one_by_one"])
def test_a_shared_plan_computes_each_distinct_node_once(policy):
    dag = random_dag(6, 0)
    schedule = build_schedule(dag, [Up()], policy, share=True)
    (plan,), all_rows, texts = schedule.passes, schedule.node_rows[0].rows.tolist(), structures(dag)
    first = sorted({texts.index(text) for text in texts})
    assert plan.num_rows == len(first) < len(all_rows) == dag.num_nodes
    assert schedule.report([Up()]).total.nodes == dag.num_nodes
    assert max(group.stop for group in plan.groups) == plan.num_rows + 1
    for node, row in enumerate(all_rows):
        assert texts[first[int(plan.node[row - 1])]] == texts[node]
    for row in range(1, plan.num_rows + 1):
        node = first[int(plan.node[row - 1])]
        own = slice(int(plan.child_ptr[row - 1]), int(plan.child_ptr[row]))
        edges = slice(int(dag.input_ptr[node]), int(dag.input_ptr[node + 1]))
        inputs = dag.input_index[edges]
        rows = [all_rows[i] if i >= 0 else 0 for i in inputs.tolist()]
        assert plan.child_row[own].tolist() == rows
        assert plan.edge[own].tolist() == list(range(edges.start, edges.stop))


def test_nodes_that_differ_are_not_shared():
    builder = GraphBuilder(SCHEMA)
    for code in range(NUM_WORDS):
        builder.output(builder.node("word", code=code))
        builder.finish()
    dag = builder.build()
    assert classes_up(dag).are_single
    assert build_schedule(dag, [Up()], share=True).class_of is None
    assert len(classes_up(GraphBuilder(SCHEMA).build()).representative) == 0


def test_the_order_of_inputs_and_the_sign_of_zero_make_a_difference():
    builder = GraphBuilder(SCHEMA)
    a, b = builder.node("word", code=0), builder.node("word", code=1)
    for pair, zero in [((a, b), 0.0), ((b, a), 0.0), ((a, b), -0.0), ((a, b), 0.0)]:
        node = builder.node("pair", mark=(zero, 0.0), flag=True)
        builder.inputs(node, pair, weight=[1.0, 1.0])
        builder.output(node)
    builder.finish()
    assert classes_up(builder.build()).inverse.tolist() == [0, 1, 2, 3, 4, 2]


@pytest.mark.parametrize("height", [0, 3])
def test_readers_of_the_same_nodes_are_shared_high_above_what_differs(height):
    # No node below the twins has an equal, but the two nodes that both of them read.
    builder = GraphBuilder(SCHEMA)
    ends = []
    for code in range(2):
        node = builder.node("word", code=code)
        for _ in range(height):
            below, node = node, builder.node("phrase")
            builder.inputs(node, [below], weight=[1.0])
        ends.append(node)
    twins = [builder.node("pair", mark=(0.0, 0.0), flag=True) for _ in range(2)]
    for twin in twins:
        builder.inputs(twin, ends, weight=[1.0, 1.0])
        builder.output(twin)
    builder.finish()
    assert classes_up(builder.build()).first.tolist() == [*range(twins[1]), twins[0]]


def test_equal_chains_and_stars_are_shared():
    builder = GraphBuilder(SCHEMA)
    for _ in range(2):
        words = [builder.node("word", code=0) for _ in range(1000)]
        star = builder.node("phrase")
        builder.inputs(star, words, weight=[1.0] * 1000)
        node = star
        for _ in range(1000):
            below, node = node, builder.node("phrase")
            builder.inputs(node, [below], weight=[1.0])
        builder.output(node)
        builder.finish()
    assert len(classes_up(builder.build()).representative) == 1 + 1 + 1000


@pytest.mark.parametrize("exponent", [40, 60, 62])  # 60: two columns do not fit into one integer
def test_columns_of_any_kind_are_compared(exponent):
    schema = Schema(
        (
            NodeType(
                "node",
                0,
                (
                    Column("big", "int64"),
                    Column("other", "int64"),
                    Column("vector", "float64", (3,)),
                ),
            ),
        )
    )
    builder = GraphBuilder(schema)
    big = 1 << exponent
    rows = [(big, 5, 1.0), (-big, 5, 1.0), (big, 6, 1.0), (big, 5, 2.0), (big, 5, 1.0)]
    for first, other, last in rows:
        node = builder.node("node", big=first, other=other, vector=(0, 0, last))
        builder.output(node)
        builder.finish()
    assert classes_up(builder.build()).inverse.tolist() == [0, 1, 2, 3, 0]


class RandomWord(WordCell):
    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": nn.functional.dropout(state["h"], 0.5)}


class RandomBefore(WordCell):
    def before(self, x):
        return x + torch.randn_like(x)


@pytest.mark.filterwarnings("ignore:RandomWord is not compiled")
@pytest.mark.parametrize("way", ["auto", "eager"])
@pytest.mark.parametrize("cell", [RandomWord, RandomBefore])
def test_a_cell_that_draws_random_numbers_is_refused(cell, way):
    dag = random_dag(3, 0)
    network = Network(SCHEMA, (Up(), {**tree_cells(), "word": cell()}), run=way).double()
    x = Features().double()(dag)
    with pytest.raises(EngineError, match=f"{cell.__name__}.*drew random numbers.*share=False"):
        network(Batch(dag, build_schedule(dag, [Up()], share=True)), x)
    network(Batch(dag, build_schedule(dag, [Up()])), x)


@pytest.mark.parametrize(("name", "base"), [("word", WordCell), ("pair", PairCell)])
def test_a_cell_that_gathers_statistics_is_refused_in_training(name, base):
    class Counting(base):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def before(self, x):
            self.calls += 1
            return super().before(x)

    dag = random_dag(3, 0)
    network = Network(SCHEMA, (Up(), {**tree_cells(), name: Counting()}), run="eager").double()
    x, shared = Features().double()(dag), Batch(dag, build_schedule(dag, [Up()], share=True))
    with pytest.raises(EngineError, match=r"Counting changes its buffer 'calls'.*share=False"):
        network(shared, x)
    network(Batch(dag, build_schedule(dag, [Up()])), x)
    network.eval()(shared, x)


def test_the_gradient_of_x_falls_on_the_node_that_stands_for_others():
    dag = random_dag(3, 0)
    torch.manual_seed(0)
    network = Network(SCHEMA, (Up(), tree_cells())).double()
    features = Features().double()
    grads = []
    for share in (False, True):
        x = {name: value.detach().requires_grad_() for name, value in features(dag).items()}
        states = network(Batch(dag, build_schedule(dag, [Up()], share=share)), x)
        states["h"].sum().backward()
        grads.append(x["word"].grad)
    code = dag.features("word")["code"]
    for number in range(NUM_WORDS):
        alone, together = (grad[code == number] for grad in grads)
        assert (together[1:] == 0).all()
        torch.testing.assert_close(together[0], alone.sum(0))
