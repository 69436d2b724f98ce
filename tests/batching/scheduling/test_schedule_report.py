"""Schedule reports: launches against the least that any schedule needs."""

from __future__ import annotations

import json

import pytest
from engine_cells import SCHEMA, chain, random_dag

from graphfold.batching import POLICIES, Down, Rounds, Up, build_schedule
from graphfold.dag import GraphBuilder


def longest_chains(dag):
    """The sum over types of the most nodes of that type on a path, one node at a time."""
    total = 0
    for op_type in range(len(dag.schema.types)):
        most = [0] * dag.num_nodes
        for node in sorted(range(dag.num_nodes), key=lambda n: int(dag.depth[n])):
            inputs = dag.input_index[dag.input_ptr[node] : dag.input_ptr[node + 1]].tolist()
            below = max((most[i] for i in inputs if i >= 0), default=0)
            most[node] = below + (int(dag.op_type[node]) == op_type)
        total += max(most, default=0)
    return total


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_no_policy_beats_the_lower_bound(policy, seed):
    dag = random_dag(3, seed)
    passes = [Up(), Down()]
    up, down = build_schedule(dag, passes, policy).report(passes).passes
    # A path is as long from either end.
    assert up.lower_bound == down.lower_bound == longest_chains(dag)
    assert up.launches >= up.lower_bound
    assert down.launches >= down.lower_bound


def test_a_report_counts_launches_and_rows():
    dag = chain(5)
    passes = [Up(), Rounds("next", 3)]
    schedule = build_schedule(dag, passes)
    report = schedule.report(passes)
    up, rounds = report.passes
    assert (up.name, up.launches, up.rows, up.nodes, up.lower_bound) == ("Up", 6, 6, 6, 6)
    assert (up.ratio, up.rows_per_launch) == (1.0, 1.0)
    # Words and phrases, three times.
    assert (rounds.name, rounds.launches, rounds.rows) == ("Rounds(next)", 6, 18)
    assert (report.total.launches, report.total.lower_bound, report.total.rows) == (12, 12, 24)


def test_a_report_can_be_printed_and_stored():
    passes = [Up(), Rounds("next", 3)]
    report = build_schedule(chain(5), passes).report(passes)
    lines = str(report).splitlines()
    assert lines[0].split() == [
        *("pass", "launches", "lower", "bound", "ratio", "rows/launch", "rows", "nodes")
    ]
    assert lines[-1].split() == ["total", "12", "12", "1.00", "2.0", "24", "24"]
    stored = json.loads(json.dumps(report.to_dict()))
    assert stored["total"]["rows_per_launch"] == 2.0
    assert [item["name"] for item in stored["passes"]] == ["Up", "Rounds(next)"]


def test_a_batch_without_nodes_has_a_report():
    dag = GraphBuilder(SCHEMA).build()
    (up,) = build_schedule(dag, [Up()]).report([Up()]).passes
    assert (up.launches, up.lower_bound, up.ratio, up.rows_per_launch) == (0, 0, 0.0, 0.0)
