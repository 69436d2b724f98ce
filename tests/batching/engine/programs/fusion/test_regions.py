"""Which operations of a program become one kernel. The kernels are computed by torch here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fusion_checks import WIDTH, functions, joint_of, launches, run_graph, traced_graph, twin
from hypothesis import given
from torch import Tensor, fx

from graphfold.batching.engine.programs import trace as trace_module
from graphfold.batching.engine.programs.fusion.operations import is_computable
from graphfold.batching.engine.programs.fusion.regions import (
    MAX_LANES,
    Kernels,
    Region,
    find_region,
    fuse,
)
from graphfold.batching.engine.programs.joint import Joint
from graphfold.batching.engine.programs.program import Program
from graphfold.batching.engine.programs.trial import agrees
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell, TreeFCCell, TreeRNNCell


def programs_of(joint: Joint) -> tuple[Program, Program]:
    """The plain program of a cell, and the one whose regions are computed by torch."""
    make = trace_module._trace(joint)
    return make(None), make(Kernels(twin, packs=False))


#: Name -> cell, launches of its plain program forward and backward, and of the fused one.
CELLS = {
    "leaf": (lambda: LeafLSTMCell(WIDTH, WIDTH), (5, 8), (1, 1)),
    "binary Tree-LSTM": (lambda: NaryTreeLSTMCell(WIDTH, WIDTH), (9, 11), (2, 2)),
    "Tree-LSTM of three": (lambda: NaryTreeLSTMCell(WIDTH, WIDTH, arity=3), (9, 11), (2, 2)),
    "Tree-RNN": (lambda: TreeRNNCell(WIDTH, WIDTH), (3, 2), (2, 2)),
    "Tree-FC": (lambda: TreeFCCell(WIDTH), (2, 2), (2, 2)),  # one operation is no region
}


@pytest.mark.parametrize("name", CELLS)
def test_the_elementwise_part_of_a_cell_is_one_launch(name):
    make, plain_launches, fused_launches = CELLS[name]
    joint = joint_of(make(), has_x=name != "Tree-FC")
    plain, fused = programs_of(joint)
    for program, wanted in ((plain, plain_launches), (fused, fused_launches)):
        backward = program.backward.without()
        assert (launches(program.forward), launches(backward)) == wanted
    assert agrees(joint, fused, torch.allclose)


def test_a_bias_is_added_on_the_way_to_the_gates_that_are_cut_out_of_the_sum():
    joint = joint_of(NaryTreeLSTMCell(0, WIDTH), has_x=False)
    codes = [program.forward.__self__.code for program in programs_of(joint)]
    assert ["addmm" in code for code in codes] == [True, False]
    assert agrees(joint, programs_of(joint)[1], torch.allclose)


@pytest.mark.parametrize("missing", [{0}, {1}])
def test_backward_without_a_gradient_is_fused_too(missing):
    joint = joint_of(NaryTreeLSTMCell(WIDTH, WIDTH))
    plain, fused = (program.backward.without(frozenset(missing)) for program in programs_of(joint))
    assert launches(fused) < launches(plain) / 2
    arguments = [n for n in plain.__self__.graph.nodes if n.op == "placeholder"]
    given = [_made_up(node) for node in arguments]
    for one, other in zip(plain(*given), fused(*given), strict=True):
        torch.testing.assert_close(one, other)


def _made_up(node: fx.Node) -> object:
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return 7
    sizes = [size if isinstance(size, int) else 7 for size in value.shape]
    return torch.rand(sizes, dtype=value.dtype)


# --- Any graph


@given(functions())
def test_a_graph_gives_the_same_with_its_regions_as_calls(function):
    x, weight = torch.rand(7, 2 * WIDTH, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    graph = traced_graph(function, x, weight)

    def build(region: Region) -> Callable[..., object]:
        assert_convex(graph, region)
        assert len(region.members) > 1
        return twin(region)

    fuse(graph, build)
    for one, other in zip(run_graph(graph, x, weight), function(x, weight), strict=True):
        torch.testing.assert_close(one, other)
    for node in graph.nodes:  # no two that could be one are left
        if is_computable(node):
            assert len(find_region(graph, node).members) == 1


def assert_convex(graph: fx.Graph, region: Region) -> None:
    """Nothing outside depends on a member and is needed by one, but for views."""
    inside = {*region.members, *region.views}
    below: set[fx.Node] = set()
    for node in graph.nodes:
        if node not in inside and any(n in inside or n in below for n in node.all_input_nodes):
            below.add(node)
        if node in region.members:
            assert below.isdisjoint(node.all_input_nodes)


# --- What is left alone


def only_region(function: Callable[..., object], *examples: Tensor) -> list[list[str]]:
    """The operations of each region."""
    graph, found = traced_graph(function, *examples), []

    def build(region: Region) -> Callable[..., object]:
        found.append([node.target.overloadpacket.__name__ for node in region.members])
        return twin(region)

    fuse(graph, build)
    return found


X = torch.rand(7, 3 * WIDTH)


def test_one_operation_is_no_region():
    assert only_region(torch.tanh, X) == []


def test_operations_of_other_rows_are_other_regions():
    def function(x: Tensor, rows: Tensor) -> list[Tensor]:
        return [torch.tanh(x) * 2, torch.sigmoid(x.view(-1, WIDTH)) * 3]

    assert only_region(function, X, X) == [["tanh", "mul"], ["sigmoid", "mul"]]


def test_whole_numbers_and_half_precision_are_not_computed():
    assert only_region(lambda x: (x * 2) + 1, X.to(torch.int64)) == []
    assert only_region(lambda x: (x * 2) + 1, X.half()) == []


def test_what_falls_into_too_many_lanes_is_left_out():
    wide = torch.rand(7, MAX_LANES + 1)
    assert only_region(lambda x: [x[:, :1].tanh() * 2, x[:, :2] * 3 + 1], wide)
    assert only_region(lambda x: [x.tanh()[:, :1] * 2], wide) == []


def test_a_sum_over_the_columns_stays_outside():
    assert only_region(lambda x: torch.tanh(x * 2) - torch.tanh(x * 2).sum(1, keepdim=True), X) == [
        ["mul", "tanh", "mul", "tanh"]
    ]
