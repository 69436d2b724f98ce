"""Functions that choose by size are one operation in a trace, and choose when its code runs."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from graphfold.batching.engine.programs.program_rewrites import quicken
from graphfold.batching.engine.programs.trace import GROUP_SIZE, NUM_EDGES, open_graph
from graphfold.batching.kernels.opaque import function_of, is_open, opaque
from graphfold.batching.kernels.segment import (
    expand,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
    sum_by_index_add,
    sum_by_runs,
)


@opaque(torch.empty_like)
def halve_if_many(values):
    return values / 2 if len(values) > 3 else values.clone()


def traced(function, *examples):
    """The code of a trace whose number of rows is open."""
    graph = open_graph(lambda *tensors: [function(*tensors)], examples)
    for node in graph.nodes:
        quicken(node)
    return fx.GraphModule(torch.nn.Module(), graph)


def test_the_choice_is_made_when_the_code_runs():
    code = traced(lambda x: halve_if_many(x + 1), torch.zeros(GROUP_SIZE, 2))
    for size in (1, 3, 4, 9):
        x = torch.rand(size, 2)
        assert torch.equal(code(x)[0], halve_if_many(x + 1))


def test_a_trace_calls_the_function_itself():
    graph = traced(halve_if_many, torch.zeros(GROUP_SIZE, 2)).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [halve_if_many.__wrapped__]


def test_other_operations_stand_for_no_function():
    assert function_of(torch.ops.aten.add.Tensor) is None
    assert function_of(torch.add) is None


def test_only_rows_in_a_trace_are_open():
    seen = []

    def look(x, weight):
        seen.extend((is_open(x), is_open(weight)))
        return [x @ weight]

    open_graph(look, [torch.zeros(GROUP_SIZE, 2)], [torch.zeros(2, 2)])
    assert seen == [True, False]
    assert not is_open(torch.zeros(3))


def value_and_gradient(reduce):
    """(values, ptr, parent) -> the reduction's value with the gradient of a sum of it."""

    def function(values, ptr, parent):
        with torch.enable_grad():
            values = values.detach().requires_grad_()
            found = reduce(values, ptr, parent)
            weight = torch.linspace(-1, 2, values.shape[1], dtype=values.dtype)
            (grad,) = torch.autograd.grad((found.tanh() * weight).sum(), values)
        return torch.cat([found, grad])

    return function


def back_and_forth(values, ptr, parent):
    return expand(segment_sum(values, ptr, parent).sin(), ptr, parent)


@pytest.mark.parametrize("small", [0, 30, 1 << 40])
@pytest.mark.parametrize(
    "reduce",
    [
        segment_sum,
        segment_mean,
        segment_max,
        segment_softmax,
        sum_by_runs,
        sum_by_index_add,
        back_and_forth,
    ],
)
def test_reductions_are_the_same_in_a_trace(reduce, small, monkeypatch):
    monkeypatch.setattr("graphfold.batching.kernels.segment.SMALL", small)
    function = value_and_gradient(reduce)
    ptr, parent = torch.zeros(GROUP_SIZE + 1).long(), torch.zeros(NUM_EDGES).long()
    code = traced(function, torch.zeros(NUM_EDGES, 3), ptr, parent)
    for lengths in ([1], [2, 0, 3], [0, 0], [4, 1, 7, 1], []):
        count = torch.tensor(lengths, dtype=torch.int64)
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        parent = torch.repeat_interleave(torch.arange(len(count)), count)
        values = torch.randn(len(parent), 3)
        assert torch.equal(code(values, ptr, parent)[0], function(values, ptr, parent))
