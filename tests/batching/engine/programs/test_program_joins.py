"""Joins of a program: written side by side, with the numbers of the copies that they save."""

from __future__ import annotations

import copy

import pytest
import torch
from fusion_checks import WIDTH, functions, joint_of, run_graph, traced_graph
from hypothesis import given
from torch import fx

from graphfold.batching.engine.programs import trace as trace_module
from graphfold.batching.engine.programs.program_joins import write_side_by_side
from graphfold.batching.engine.programs.program_places import reuse_memory
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell

aten = torch.ops.aten


def joins(graph: fx.Graph) -> int:
    return sum(node.target in (aten.cat.default, torch.cat) for node in graph.nodes)


@given(functions())
def test_random_code_gives_the_same(function):
    torch.manual_seed(0)
    x = torch.randn(7, 4 * WIDTH, dtype=torch.float64)
    weight = torch.randn(WIDTH, WIDTH, dtype=torch.float64)
    graph = traced_graph(function, x, weight)
    want = run_graph(copy.deepcopy(graph), x, weight)
    before = x.clone()
    write_side_by_side(graph)
    reuse_memory(graph)
    got = run_graph(graph, x, weight)
    assert torch.equal(x, before)
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("cell", [LeafLSTMCell, NaryTreeLSTMCell])
def test_an_lstm_copies_nothing(cell):
    program = trace_module._trace(joint_of(cell(WIDTH, WIDTH)))(None)
    assert joins(program.backward.without().__self__.graph) == 0


#: What is joined -> how many copies are left.
JOINS = {
    "computed": (lambda x: [x * 2, x - 1], 0),
    "not the same for single numbers": (lambda x: [x * 2, x.sigmoid()], 1),
    "one of another": (lambda x: [(a := x - 1), a * 2], 1),  # read twice: it stays where it is
    "twice the same": (lambda x: [a := x - 1, a], 1),
    "given": (lambda x: [x, x - 1], 1),
    "products": (lambda x: [x @ torch.eye(4), x - 1], 1),
    "a view": (lambda x: [(x.view(-1, 2, 2) * 3).view(-1, 4), x - 1], 0),
    "fewer rows": (lambda x: [(x.view(-1, 2) * 3).view(-1, 4), x - 1], 1),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_can_be_written_side_by_side(name):
    parts, left = JOINS[name]
    graph = traced_graph(lambda x: torch.cat(parts(x), 1) + 1, x := torch.randn(7, 4))
    want = run_graph(copy.deepcopy(graph), x)
    assert joins(graph) == 1
    write_side_by_side(graph)
    assert joins(graph) == left
    assert torch.equal(*run_graph(graph, x), *want)
