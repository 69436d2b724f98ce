"""Contracts that every cell fulfils."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers.cells_table import CASES, Case
from strategies import chain, dags, empty, node_orders, renumber, star, with_empty_graph
from thinned import every, thinned
from torch import Tensor

from graphfold import layers
from graphfold.batching import Cell, Down, Network
from graphfold.dag import GraphBuilder, TypedDAG, select, split

few = settings(max_examples=3)
on_each_backend = pytest.mark.usefixtures("backend")
all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
#: Every cell, and the ways that it runs.
BOTH_WAYS = [(case, run) for case in CASES for run in case.runs]
ANY_ARITY = [
    (case, run)
    for case in CASES
    if case.any_arity and not case.random
    for run in case.runs[: 1 if case.has_rounds else 2]
]
TREES = [case for case in CASES if not case.has_rounds]


def ways(cases: list[tuple[Case, str]], step: int, first: int) -> Any:
    """Some of the ways that cells run, the others in slow tests.

    That the states and gradients of every cell are those of the reference, which computes one node
    at a time, `test_batched_equals_one_node_at_a_time` says of all. Other contracts follow from it
    where graphs are as small as there, so each of them is seen with some of the cells.
    """
    return pytest.mark.parametrize(("case", "run"), every(step, cases, first, id=way_name))


def way_name(case: Case, run: str) -> str:
    return f"{case.name}-{run}"


BIG = 10_000


@functools.cache
def _network(name: str, run: str, is_training: bool) -> Network:
    (case,) = (case for case in CASES if case.name == name)
    return case.network(run).train(is_training)


def network_of(case: Case, run: str, is_training: bool = True) -> Network:
    """Its network, which all tests share: compiling one takes longer than running it."""
    network = _network(case.name, run, is_training)
    network.run = run
    return network


def graphs(case: Case, **options: object) -> st.SearchStrategy[TypedDAG]:
    return dags(case.schema, absent=True, symmetric=True, **options)


def total(states: dict[str, Tensor]) -> Tensor:
    """A scalar to which every element of every field contributes differently."""
    weights = (torch.linspace(-1, 2, s.numel(), dtype=s.dtype).view_as(s) for s in states.values())
    return torch.stack([(s * w).sum() for s, w in zip(states.values(), weights, strict=True)]).sum()


def values_and_gradients(
    case: Case, dag: TypedDAG, network: Network, policy: str = "depth"
) -> dict[str, Tensor]:
    x = case.features(dag)
    states = case.run(dag, network, x, policy)
    named = dict(network.named_parameters()) | {f"x of {name}": t for name, t in x.items()}
    # Zero times x keeps the loss differentiable where there is no node to compute.
    loss = total(states) + sum(0 * t.sum() for t in x.values())
    grads = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    return {**states, **{f"grad of {n}": g for n, g in zip(named, grads, strict=True)}}


@on_each_backend
@all_cases
@few
@given(data=st.data())
def test_batched_equals_one_node_at_a_time(case, data):
    dag = data.draw(graphs(case))
    want = values_and_gradients(case, dag, case.network("reference"))
    for run in case.runs:
        got = values_and_gradients(case, dag, network_of(case, run))
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def many_nodes(case: Case) -> TypedDAG:
    """Some hundred leaves, and levels of more nodes than one block has."""
    leaf, inner = case.schema.types
    generator = torch.Generator().manual_seed(0)
    builder = GraphBuilder(case.schema)
    below = list(builder.nodes(leaf.name, 300))
    for count in (260, 150, 40, 3):
        slots = [inner.arity or number % 6 for number in range(count)]
        picked = [torch.randint(len(below), (n,), generator=generator).tolist() for n in slots]
        inputs = [[below[place] for place in places] for places in picked]
        below = list(builder.nodes(inner.name, count, inputs=inputs)) + below[:20]
    builder.output(below[0])
    builder.finish()
    return builder.build()


@on_each_backend
@pytest.mark.parametrize("case", every(2, TREES, id=lambda case: case.name))
def test_many_nodes_on_many_levels(case):
    dag, network = many_nodes(case), network_of(case, "compiled")
    got = values_and_gradients(case, dag, network)
    network.run = "eager"
    want = values_and_gradients(case, dag, network)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    torch.set_num_threads(2)
    network.run = "compiled"
    again = values_and_gradients(case, dag, network)
    torch.testing.assert_close(again, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", every(4, TREES, 1, id=lambda case: case.name))
def test_every_cell_of_trees_is_compiled(case, backend):
    """In float32, with gradients and without; in float64 other tests demand it (run="compiled").

    `test_batched_equals_one_node_at_a_time` does so of all cells.
    """
    dag = many_nodes(case)
    network = case.network().float()  # a warning would be an error
    x = {name: value.detach().float() for name, value in case.features(dag).items()}
    for is_training, grad in ((True, True), (False, False)):
        network.train(is_training)
        with torch.set_grad_enabled(grad):
            case.run(dag, network, x)
        assert set(network.execution.values()) == {f"compiled ({backend})"}


def test_the_table_has_all_cells():
    listed = {type(cell) for c in CASES for cell in c.network().modules() if isinstance(cell, Cell)}
    public = (getattr(layers, name) for name in layers.__all__)
    missing = {p for p in public if isinstance(p, type) and issubclass(p, Cell)} - listed
    assert not missing


@ways(BOTH_WAYS, 5, 0)
@few
@given(data=st.data())
def test_numbers_do_not_depend_on_the_schedule(case, run, data):
    dag, network = data.draw(graphs(case)), network_of(case, run)
    want = values_and_gradients(case, dag, network)
    for policy in ("agenda", "one_by_one"):
        got = values_and_gradients(case, dag, network, policy)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


#: Of uncompiled cells it is slow: test_batched_equals_one_node_at_a_time says that they have the
#: gradients of compiled ones; and so have the cells that are left out here those of the reference.
CHECKED = [(case, run) for case, run in BOTH_WAYS if run != "eager"][::8]


@on_each_backend
@pytest.mark.parametrize(("case", "run"), thinned(BOTH_WAYS, CHECKED, id=way_name))
@settings(max_examples=2)
@given(data=st.data())
def test_gradcheck(case, run, data):
    dag, network = data.draw(graphs(case, max_graphs=2, max_nodes=5)), network_of(case, run)
    x = case.features(dag)
    parameters = dict(network.named_parameters())

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        given_x = dict(zip(x, tensors[: len(x)], strict=True))
        given_parameters = dict(zip(parameters, tensors[len(x) :], strict=True))
        with torch.nn.utils.stateless._reparametrize_module(network, given_parameters):
            states = case.run(dag, network, given_x).values()
        # Zero times x: sums over no children at all are differentiable, too.
        nothing = sum(0 * t.sum() for t in given_x.values())
        return tuple(state + nothing for state in states)

    assert torch.autograd.gradcheck(run, (*x.values(), *parameters.values()), fast_mode=True)


@ways(BOTH_WAYS, 5, 1)
@few
@given(data=st.data())
def test_no_gradient_crosses_between_graphs(case, run, data):
    dag, network = data.draw(graphs(case, min_graphs=2)), network_of(case, run)
    graph = data.draw(st.integers(0, dag.num_graphs - 1))
    x = case.features(dag)
    states = case.run(dag, network, x)
    mine = dag.batch == graph
    grads = torch.autograd.grad(
        total({name: state[mine] for name, state in states.items()}),
        list(x.values()),
        materialize_grads=True,
    )
    for name, grad in zip(x, grads, strict=True):
        others = ~mine[dag.nodes_of_type(name)]
        assert not grad[others].any()


@ways(BOTH_WAYS, 5, 2)
@few
@given(data=st.data())
def test_a_graph_gives_the_same_alone(case, run, data):
    dag, network = data.draw(graphs(case, min_graphs=2)), network_of(case, run, False)
    x = case.features(dag)
    together = case.run(dag, network, x)
    for graph, alone in enumerate(split(dag)):
        rows = {n: x[n][dag.batch[dag.nodes_of_type(n)] == graph] for n in x}
        want = {name: state[dag.batch == graph] for name, state in together.items()}
        torch.testing.assert_close(case.run(alone, network, rows), want)


@ways(BOTH_WAYS, 5, 3)
@few
@given(data=st.data())
def test_reordered_graphs_only_reorder_the_states(case, run, data):
    dag, network = data.draw(graphs(case, min_graphs=2)), network_of(case, run, False)
    order = torch.tensor(data.draw(st.permutations(range(dag.num_graphs))))
    nodes = torch.cat([torch.nonzero(dag.batch == graph).view(-1) for graph in order])
    check_moved(case, dag, select(dag, order), nodes, network)


@ways(BOTH_WAYS, 5, 4)
@few
@given(data=st.data())
def test_renumbered_nodes_only_reorder_the_states(case, run, data):
    dag, network = data.draw(graphs(case)), network_of(case, run, False)
    order = data.draw(node_orders(dag))
    check_moved(case, dag, renumber(dag, order), order, network)


def check_moved(
    case: Case, dag: TypedDAG, moved: TypedDAG, nodes: Tensor, network: Network
) -> None:
    """Node i of `moved` is node nodes[i] of `dag`."""
    x = case.features(dag)
    states = case.run(dag, network, x)
    rank = {n: torch.searchsorted(dag.nodes_of_type(n), nodes[moved.nodes_of_type(n)]) for n in x}
    moved_states = case.run(moved, network, {name: x[name][rank[name]] for name in x})
    want = {name: state[nodes] for name, state in states.items()}
    torch.testing.assert_close(moved_states, want, rtol=1e-12, atol=1e-12)


@ways(BOTH_WAYS, 5, 0)
def test_no_graph_at_all(case, run):
    network = network_of(case, run)
    actual = values_and_gradients(case, empty(case.schema), network)
    for name, tensor in actual.items():
        assert tensor.shape[0] == 0 or name.startswith("grad of cells")
        assert not tensor.any()


@ways(BOTH_WAYS, 5, 1)
@few
@given(data=st.data())
def test_an_empty_graph_in_last_place_changes_nothing(case, run, data):
    dag, network = data.draw(graphs(case)), network_of(case, run)
    want = values_and_gradients(case, dag, network)
    got = values_and_gradients(case, with_empty_graph(dag), network)
    torch.testing.assert_close(got, want)


@ways(BOTH_WAYS, 5, 2)
def test_a_single_node(case, run):
    builder = GraphBuilder(case.schema)
    builder.output(builder.node(case.schema.types[0].name))
    builder.finish()
    network = case.network("reference")
    want = values_and_gradients(case, builder.build(), network)
    network = network_of(case, run)
    got = values_and_gradients(case, builder.build(), network)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@ways(BOTH_WAYS, 5, 3)
def test_a_shared_child_collects_gradients_from_every_parent(case, run):
    dag = diamond(case)
    network = case.network("reference")
    want = values_and_gradients(case, dag, network)
    network = network_of(case, run)
    got = values_and_gradients(case, dag, network)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def diamond(case: Case) -> TypedDAG:
    """A leaf that two nodes read, in different levels, and twice in one of them."""
    builder = GraphBuilder(case.schema)
    leaf = builder.node(case.schema.types[0].name)
    if len(case.schema.types) > 1:
        inner = case.schema.types[1]
        slots = inner.arity or 2
        low = builder.node(inner.name, [leaf] * slots)
        top = builder.node(inner.name, [leaf, low, *[None] * (slots - 2)])
    else:
        low, top = builder.nodes(case.schema.types[0].name, 2)
        builder.edges("bond", [leaf, leaf, low, leaf], [low, top, top, top])
    builder.output(top)
    builder.finish()
    return builder.build()


@pytest.mark.parametrize("case", every(4, CASES, 1, id=lambda case: case.name))
@few
@given(data=st.data())
def test_autocast_stays_close_and_keeps_the_dtype(case, data):
    dag, network = data.draw(graphs(case)), case.network(run="eager").float()
    x = {name: t.detach().float().requires_grad_() for name, t in case.features(dag).items()}
    want = case.run(dag, network, x)
    network.run = "auto"
    with torch.autocast("cpu", torch.bfloat16):
        got = case.run(dag, network, x)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)
    tensors = [*network.parameters(), *x.values()]
    if any(grad.any() for grad in gradients(want, tensors)):  # of few nodes, all may be dropped
        check_gradients(got, tensors)


#: Tests of the engine have such chains, too; 10,000 calls of a cell take seconds.
@ways(ANY_ARITY, 24, 0)
def test_ten_thousand_deep(case, run):
    names = [node_type.name for node_type in case.schema.types]
    length = 1000 if run == "eager" else BIG  # group by group, it is run by tests of the engine
    dag, network = chain(case.schema, names[0], names[-1], length), network_of(case, run)
    x = case.features(dag)
    states = case.run(dag, network, x)
    check_gradients(states, [*network.parameters(), *x.values()])
    if any(isinstance(item, Down) for item in case.passes):  # it sees what is above, too
        return
    # Two rounds see two nodes far, a pass up sees only what is below: the first nodes are the same
    # in a shorter chain.
    short = chain(case.schema, names[0], names[-1], 50)
    short_x = {n: x[n][:count] for n, count in zip(names, short.num_nodes_by_type, strict=True)}
    for name, state in case.run(short, network, short_x).items():
        torch.testing.assert_close(states[name][:48], state[:48], rtol=1e-12, atol=1e-12)


@ways(ANY_ARITY, 4, 1)
def test_ten_thousand_wide(case, run):
    names = [node_type.name for node_type in case.schema.types]
    dag, network = star(case.schema, names[0], names[-1], BIG), network_of(case, run)
    x = case.features(dag)
    states = case.run(dag, network, x)
    check_gradients(states, [*network.parameters(), *x.values()])
    if case.ordered:
        return
    # The order of the children makes no difference to the sum.
    turned = {n: t.flip(0) if n == names[0] != names[-1] else t for n, t in x.items()}
    for name, state in case.run(dag, network, turned).items():
        torch.testing.assert_close(states[name][-1], state[-1], rtol=1e-9, atol=1e-9)


def check_gradients(states: dict[str, Tensor], tensors: list[Tensor]) -> None:
    """Every tensor gets a finite gradient, and some of them one that is not zero."""
    grads = gradients(states, tensors)
    assert all(tensor.isfinite().all() for tensor in (*states.values(), *grads))
    assert any(grad.any() for grad in grads)


def gradients(states: dict[str, Tensor], tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of `total`; zero for tensors that it does not depend on."""
    return torch.autograd.grad(total(states), tensors, materialize_grads=True)
