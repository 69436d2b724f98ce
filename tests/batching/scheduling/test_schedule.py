"""Schedules and policies: every node once, children strictly earlier, one type per group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_cells import SCHEMA, chain, random_dag

from graphfold.batching import POLICIES, Down, Rounds, Up, build_schedule
from graphfold.dag import GraphBuilder, collate
from graphfold.errors import ConfigError, SchemaError

SEEDS = range(3)


def edges_of(dag, item):
    """(node read, node that reads, edge number) of a pass, straight from the graph."""
    edges = []
    for node in range(dag.num_nodes):
        for number in range(int(dag.input_ptr[node]), int(dag.input_ptr[node + 1])):
            child = int(dag.input_index[number])
            if isinstance(item, Up):
                edges.append((child, node, number))
            elif child >= 0:
                edges.append((node, child, number))
    return edges


@pytest.mark.parametrize("item", [Up(), Down()])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_groups_cover_every_node_once_after_its_children(item, policy, seed):
    dag = random_dag(3, seed)
    (plan,) = build_schedule(dag, [item], policy).passes
    row = plan.row.tolist()
    assert sorted(row) == list(range(1, dag.num_nodes + 1))
    assert [plan.node.tolist()[r - 1] for r in row] == list(range(dag.num_nodes))
    group_of = {}
    for index, group in enumerate(plan.groups):
        nodes = plan.node[group.start - 1 : group.stop - 1]
        assert set(dag.op_type[nodes].tolist()) == {group.op_type}
        assert group_of.keys().isdisjoint(nodes.tolist())
        group_of |= dict.fromkeys(nodes.tolist(), index)
    assert group_of.keys() == set(range(dag.num_nodes))
    for child, parent, _ in edges_of(dag, item):
        assert child < 0 or group_of[child] < group_of[parent]


@pytest.mark.parametrize("item", [Up(), Down()])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_child_edges_keep_child_order(item, policy, seed):
    dag = random_dag(3, seed)
    (plan,) = build_schedule(dag, [item], policy).passes
    want = {node: [] for node in range(dag.num_nodes)}
    for child, parent, number in edges_of(dag, item):
        want[parent].append((child, number))
    for group in plan.groups:
        for row in range(group.start, group.stop):
            edges = range(int(plan.child_ptr[row - 1]), int(plan.child_ptr[row]))
            read = [int(plan.child_row[e]) for e in edges]
            got = [int(plan.node[r - 1]) if r else -1 for r in read]
            numbers = [int(plan.edge[e]) for e in edges]
            node = int(plan.node[row - 1])
            assert list(zip(got, numbers, strict=True)) == want[node]
            assert all(int(plan.parent[e]) == row - group.start for e in edges)


@pytest.mark.parametrize("seed", SEEDS)
def test_depth_has_one_step_per_level_and_is_shortest_for_one_type(seed):
    dag = random_dag(3, seed)
    (plan,) = build_schedule(dag, [Up()], "depth").passes
    pairs = set(zip(dag.depth.tolist(), dag.op_type.tolist(), strict=True))
    assert len(plan.groups) == len(pairs)


def test_agenda_waits_for_the_type_that_is_lower_on_average():
    # Two chains, word-pair-phrase and word-phrase: by depth the phrases run apart.
    builder = GraphBuilder(SCHEMA)
    a, b = builder.node("word"), builder.node("word")
    pair = builder.node("pair", [a, a])
    top, other = builder.node("phrase", [pair]), builder.node("phrase", [b])
    builder.output(top, other)
    builder.finish()
    dag = builder.build()
    by_depth = build_schedule(dag, [Up()], "depth").passes[0]
    agenda = build_schedule(dag, [Up()], "agenda").passes[0]
    assert len(by_depth.groups) == 4
    assert len(agenda.groups) == 3


def test_rounds_hold_the_structure_once():
    dag = random_dag(3, 0)
    (plan,) = build_schedule(dag, [Rounds("next", 5)]).passes
    assert len(plan.child_row) == len(dag.relations["next"].index)
    # Readers are the same edges, sorted by what they read.
    count = np.bincount(plan.child_row.numpy(), minlength=dag.num_nodes + 1)
    assert plan.reader_ptr.diff().tolist() == count.tolist()
    for row in range(1, dag.num_nodes + 1):
        readers = plan.reader[plan.reader_ptr[row] : plan.reader_ptr[row + 1]]
        owner = torch.repeat_interleave(torch.arange(dag.num_nodes), plan.child_ptr.diff())
        assert sorted(readers.tolist()) == sorted(owner[plan.child_row == row].tolist())


def test_type_order_is_none_where_it_changes_nothing():
    dag = chain(5)
    (plan,) = build_schedule(dag, [Up()]).passes
    assert plan.type_order == (None, None, None)
    (down,) = build_schedule(dag, [Down()]).passes
    assert down.type_order[1].rows.tolist() == [4, 3, 2, 1, 0]


def test_wrong_names_are_errors():
    dag = chain(1)
    with pytest.raises(ConfigError, match="no policy 'dept'. Did you mean 'depth'"):
        build_schedule(dag, [Up()], "dept")
    with pytest.raises(SchemaError, match="no relation 'bond'. It has: next"):
        build_schedule(dag, [Rounds("bond", 1)])
    with pytest.raises(ConfigError, match="at least one round"):
        Rounds("next", 0)


def test_a_schedule_moves_to_a_device():
    moved = build_schedule(random_dag(2, 0), [Up(), Rounds("next", 2)]).to("meta")
    assert all(plan.row.device.type == "meta" for plan in moved.passes)
    assert moved.passes[1].reader.device.type == "meta"


@pytest.mark.parametrize("item", [Up(), Down(), Rounds("next", 1)])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_readers_are_the_edges_sorted_by_what_they_read(item, policy, seed):
    dag = random_dag(3, seed, size=seed)
    (plan,) = build_schedule(dag, [item], policy).passes
    owner = torch.repeat_interleave(torch.arange(plan.num_rows), plan.child_ptr.diff())
    for row in range(plan.num_rows + 1):
        own = slice(int(plan.reader_ptr[row]), int(plan.reader_ptr[row + 1]))
        edges = plan.reader_edge[own].tolist()
        assert edges == [e for e, read in enumerate(plan.child_row.tolist()) if read == row]
        assert plan.reader[own].tolist() == owner[edges].tolist()
    assert plan.reader_ptr[-1] == len(plan.child_row)


def perfect_trees(depths):
    builder = GraphBuilder(SCHEMA)
    for depth in depths:
        nodes = [builder.node("word") for _ in range(2**depth)]
        while len(nodes) > 1:
            pairs = list(zip(nodes[::2], nodes[1::2], strict=True))
            nodes = [builder.node("pair") for _ in pairs]
            for node, pair in zip(nodes, pairs, strict=True):
                builder.inputs(node, pair, weight=[0.0, 0.0])
        builder.output(nodes[0])
        builder.finish()
    return builder.build()


def chains(lengths):
    return collate([chain(length) for length in lengths])


def assert_consecutive(plan):
    """Every group reads rows that lie side by side."""
    for group in plan.groups:
        assert (plan.group_child_row(group).diff() == 1).all()


def assert_read_in_one_piece(dag, item, policy):
    (plan,) = build_schedule(dag, [item], policy).passes
    assert_consecutive(plan)


@pytest.mark.parametrize("policy", ["depth", "agenda"])
@pytest.mark.parametrize("lengths", [(3, 3, 3), (2, 4, 0, 3)])
@pytest.mark.parametrize("make", [perfect_trees, chains])
def test_perfect_trees_and_chains_are_read_in_one_piece(make, lengths, policy):
    assert_read_in_one_piece(make(lengths), Up(), policy)


def test_chains_read_consecutive_rows_on_the_way_down():
    (plan,) = build_schedule(chains((3, 7, 0, 5)), [Down()]).passes
    assert_consecutive(plan)


def test_node_order_is_kept_where_sorting_would_not_help():
    dag = random_dag(12, 1)
    (plan,) = build_schedule(dag, [Up()]).passes
    for group in plan.groups:
        nodes = plan.node[group.start - 1 : group.stop - 1]
        assert (nodes.diff() > 0).all()
