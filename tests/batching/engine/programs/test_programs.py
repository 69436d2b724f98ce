"""Programs: whatever a cell does, its trace gives the same numbers, batch after batch."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest
import torch
from engine_cells import SCHEMA as ENGINE_SCHEMA
from engine_cells import chain, make_batch, make_x, random_dag
from hypothesis import given, settings
from hypothesis import strategies as st
from program_checks import (
    assert_same,
    cell_of,
    check,
    num_programs,
    run,
    traced,
    weighted_sum,
    with_engine,
)
from random_cells import (
    FIELDS,
    OWN,
    READS,
    SCHEMA,
    SIZE,
    STACKS,
    SUMS,
    RandomCell,
    full,
    random_cells,
)
from strategies import dags
from torch import nn

from graphfold.batching import Cell, Down, Network, Pass, Up
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import EngineError
from graphfold.layers import ChildSumTreeLSTMCell, LeafCell, LeafLSTMCell, TreeGRUCell

TYPES = ("word", "phrase", "pair")


@st.composite
def some_dags(draw: st.DrawFn) -> list[TypedDAG]:
    """Batches of a node or of many, with absent children or without a type, in any order."""
    one = dags(SCHEMA, max_nodes=8, absent=True) | dags(SCHEMA, max_graphs=1, max_nodes=1)
    return draw(st.permutations([full(), draw(one), draw(one)]))


def network_of(
    passes: list[Pass], cells: list[Mapping[str, Cell]], seed: int = 0, **options: object
) -> Network:
    network = Network(SCHEMA, passes, cells, trace_after=1, **options).double()  # type: ignore[arg-type]
    torch.manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.7)
    return network


def plain_cell(kind: str, arity: int | None) -> RandomCell:
    """A cell of one part, without anything random."""
    return RandomCell(["linear", kind], False, nn.Tanh(), nn.Identity(), arity)


# --- Any cell


@settings(max_examples=12)
@given(
    word=random_cells(0, OWN, max_parts=4),
    phrase=random_cells(None, (*OWN, *SUMS)),
    pair=random_cells(2, (*OWN, *SUMS, *STACKS)),
    batches=some_dags(),
    absent=st.sets(st.sampled_from(sorted(FIELDS))),
    seed=st.integers(0, 9),
)
def test_random_cells_give_the_same_up(word, phrase, pair, batches, absent, seed):
    cells = {"word": word, "phrase": phrase, "pair": pair}
    check(network_of([Up()], [cells], seed, learned_absent=sorted(absent)), batches)


@settings(max_examples=8)
@given(
    phrase=random_cells(None, READS, max_parts=2),
    pair=random_cells(2, (*READS, *STACKS), max_parts=2),
    batches=some_dags(),
    kernel=st.sampled_from(["native", "runs", "index_add", "segment_reduce"]),
    learned=st.booleans(),
    seed=st.integers(0, 9),
)
def test_whatever_a_cell_reads_is_the_same_with_every_kernel(
    phrase, pair, batches, kernel, learned, seed
):
    for dag in batches:
        dag.columns["inputs"]["weight"].requires_grad_(learned)
    cells = {"word": plain_cell("both", 0), "phrase": phrase, "pair": pair}
    check(network_of([Up()], [cells], seed, kernel=kernel), batches)


@settings(max_examples=8)
@given(
    first=random_cells(None, (*OWN, *SUMS)),
    second=random_cells(None, ("previous", *SUMS, *OWN)),
    is_up=st.booleans(),
    batches=some_dags(),
    seed=st.integers(0, 9),
)
def test_cells_of_two_passes_and_several_types_give_the_same(first, second, is_up, batches, seed):
    passes = [Up(), Down()] if is_up else [Down(), Up()]
    cells = [dict.fromkeys(TYPES, first), dict.fromkeys(TYPES, second)]
    check(network_of(passes, cells, seed), batches)


@pytest.mark.parametrize("kind", [*OWN, *SUMS, *READS])
def test_cells_of_each_part_become_programs(kind):
    phrase = plain_cell(kind, None)
    cells = {"word": plain_cell("both", 0), "phrase": phrase, "pair": plain_cell("stack", 2)}
    network = network_of([Up()], [cells])
    check(network, [full()])
    assert all(num_programs(cell_of(network, name)) == 1 for name in TYPES)


@pytest.mark.parametrize("small", [0, 40, 1 << 40])
@pytest.mark.parametrize("input_size", [0, SIZE])
@pytest.mark.parametrize(
    ("leaf", "inner"), [(LeafLSTMCell, ChildSumTreeLSTMCell), (LeafCell, TreeGRUCell)]
)
def test_cells_of_any_number_of_children_choose_by_size_when_they_run(
    leaf, inner, input_size, small, monkeypatch
):
    monkeypatch.setattr("graphfold.batching.kernels.segment.SMALL", small)
    cells = {"word": leaf(SIZE, 4), "phrase": inner(input_size, 4), "pair": inner(input_size, 4)}
    network = network_of([Up()], [cells])
    check(network, [full(), full(lonely=True)])
    for _ in range(2):
        with torch.no_grad():
            found = [
                n(make_batch(full(), n), make_x(full())) for n in (network, with_engine(network))
            ]
        assert_same(*found, 0)
    assert [num_programs(cell_of(network, name)) for name in TYPES] == [2, 2, 2]


def test_previous_state_is_read_by_programs_too():
    cells = [dict.fromkeys(TYPES, plain_cell(kind, None)) for kind in ("sum", "previous")]
    network = network_of([Up(), Down()], cells)
    check(network, [full()])
    assert [num_programs(cell_of(network, "word", index)) for index in range(2)] == [1, 1]


@pytest.mark.parametrize("policy", ["depth", "height", "agenda", "one_by_one"])
def test_a_program_of_one_policy_serves_the_others(policy):
    network, dag = traced(), random_dag(5, 3)
    x = make_x(dag)
    run(network, dag, x)
    with torch.no_grad():
        got = network(make_batch(dag, network, policy), x)
        want = with_engine(network)(make_batch(dag, network, policy), x)
    assert_same(got, want, 1e-12)


def test_a_node_of_any_arity_may_have_no_children_after_the_trace():
    phrase = plain_cell("sum", None)
    cells = {"word": plain_cell("both", 0), "phrase": phrase, "pair": plain_cell("stack", 2)}
    network = network_of([Up()], [cells])
    check(network, [full(), full(lonely=True)])
    assert num_programs(cell_of(network, "phrase")) == 1


def test_code_for_a_group_without_edges_is_not_lost():
    def phrase(cell, x, children):
        if children.rows("h").shape[0] == 0:
            return x
        return torch.zeros_like(x).index_add(0, children.parent, children.rows("h")) - x

    builder = GraphBuilder(ENGINE_SCHEMA)
    builder.output(builder.node("phrase"))
    builder.finish()
    network, lonely = traced(phrase=phrase), builder.build()
    check(network, [random_dag(3, 0), lonely])


# --- Graphs kept, freed and used again


def prepared(seed: int = 0) -> tuple[Network, TypedDAG, dict[str, torch.Tensor]]:
    """A network that has its programs, with a batch."""
    network, dag = traced(), random_dag(4, seed)
    x = make_x(dag)
    run(network, dag, x)
    assert num_programs(cell_of(network)) == 1
    return network, dag, x


def test_two_forwards_before_one_backward():
    network, first, x = prepared()
    second = random_dag(3, 5)
    y, parameters = make_x(second), list(network.parameters())
    alone = [run(network, first, x), run(network, second, y)]
    states = [network(make_batch(d, network), v) for d, v in ((first, x), (second, y))]
    both = torch.autograd.grad(weighted_sum(states[0]) + weighted_sum(states[1]), parameters)
    want = [alone[0][name] + alone[1][name] for name, _ in network.named_parameters()]
    torch.testing.assert_close(list(both), want, rtol=1e-12, atol=1e-12)


def test_a_forward_of_the_cell_and_one_of_its_program_in_one_backward():
    network, dag = traced(), random_dag(4, 0)
    x = make_x(dag)
    states = [network(make_batch(dag, network), x) for _ in range(2)]
    both = torch.autograd.grad(weighted_sum(states[0]) + weighted_sum(states[1]), [x["word"]])
    want = 2 * run(with_engine(network), dag, x)["x word"]
    torch.testing.assert_close(both[0], want, rtol=1e-12, atol=1e-12)


def test_a_second_backward_needs_retain_graph_and_gives_the_same():
    network, dag, x = prepared()
    loss = weighted_sum(network(make_batch(dag, network), x))
    wanted = [*network.parameters(), *x.values()]
    first = torch.autograd.grad(loss, wanted, retain_graph=True)
    first = [grad.clone() for grad in first]
    second = torch.autograd.grad(loss, wanted)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, wanted)


def test_double_backward_is_refused():
    network, dag, x = prepared()
    loss = weighted_sum(network(make_batch(dag, network), x))
    with pytest.raises(EngineError, match="engine=autograd"):
        torch.autograd.grad(loss, [x["word"]], create_graph=True)


def num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())


def test_backward_frees_what_programs_saved():
    network, dag, x = prepared()
    batch = make_batch(dag, network)
    wanted = [*network.parameters(), *x.values()]
    loss = weighted_sum(network(batch, x))
    kept = num_tensors()
    torch.autograd.grad(loss, wanted)
    freed = kept - num_tensors()
    assert freed > len(batch.schedule.passes[0].groups), "the groups' tensors outlive backward"
    assert loss.grad_fn is not None


def test_without_grad_nothing_is_saved():
    network, dag, x = prepared()
    batch = make_batch(dag, network)
    with torch.no_grad():
        for _ in range(2):
            states = network(batch, x)
    before = num_tensors()
    with torch.no_grad():
        again = network(batch, x)
    assert num_tensors() - before < len(batch.schedule.passes[0].groups)
    assert_same(again, states, 0)


@pytest.mark.parametrize("changed", ["parameter", "x"])
def test_what_backward_needs_may_not_be_changed_in_place(changed):
    network, dag, x = prepared()
    loss = weighted_sum(network(make_batch(dag, network), x))
    with torch.no_grad():
        (x["word"] if changed == "x" else cell_of(network, "phrase").linear.weight).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- Gradients that come from outside


def test_incoming_gradients_may_be_absent_expanded_or_sparse():
    network, dag, x = prepared()
    other = with_engine(network)
    roots = dag.output_index
    losses = {
        "expanded": lambda n: n(make_batch(dag, n), x)["h"].sum(),
        "sparse": lambda n: n(make_batch(dag, n), x).at("c", roots).square().sum(),
        "one node": lambda n: n(make_batch(dag, n), x)["h"][0, 0],
    }
    for name, loss in losses.items():
        got, want = (torch.autograd.grad(loss(n), list(x.values())) for n in (network, other))
        assert_same(dict(zip(x, got, strict=True)), dict(zip(x, want, strict=True)), 0), name


def test_a_field_without_gradient_adds_nothing():
    def word(cell, x):
        return {"h": cell.linear(x), "c": x.abs().sqrt()}

    def zeros(dag):
        return {name: torch.zeros_like(t).requires_grad_() for name, t in make_x(dag).items()}

    check(traced(word), [chain(0)], make=zeros, loss=lambda states: states["h"].sum())


class Pair(Cell):
    """Has one field of two."""

    arity, reads = 2, ("h",)

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.linear = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x, children):
        return {"h": self.linear(children.stack("h").flatten(1)) + x}


def test_groups_that_the_loss_does_not_depend_on_add_nothing():
    builder = GraphBuilder(ENGINE_SCHEMA)
    one, other = builder.nodes("word", 2)
    for children in ([one, other], [other, one]):
        builder.output(builder.node("pair", children))
    builder.finish()
    network, dag = traced(), builder.build()
    network.cells[0]["pair"][0] = Pair().double()
    check(network, [dag], loss=lambda states: states["c"].sum())
    assert num_programs(cell_of(network, "pair")) == 1
