"""Reductions over runs of rows, against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphfold.batching.kernels import gather
from graphfold.batching.kernels.gather import (
    RowIndex,
    gather_rows,
    gather_sum,
    select_rows,
    sort_readers,
    sum_gathered,
)
from graphfold.batching.kernels.segment import (
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
)
from graphfold.dag.typed_dag import pointers

counts = st.lists(st.integers(0, 4), min_size=0, max_size=6)


def make(lengths: list[int], width: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    ptr = pointers(torch.tensor(lengths, dtype=torch.int64))
    return torch.randn(int(ptr[-1]), width, dtype=torch.float64).requires_grad_(), ptr


@given(lengths=counts)
def test_reductions_equal_loops(lengths):
    values, ptr = make(lengths)
    parts = [values[ptr[i] : ptr[i + 1]] for i in range(len(lengths))]
    zeros = torch.zeros(3, dtype=torch.float64)
    loops = {
        segment_sum: lambda part: part.sum(0),
        segment_mean: lambda part: part.mean(0) if len(part) else zeros,
        segment_max: lambda part: part.amax(0) if len(part) else zeros,
    }
    for function, loop in loops.items():
        want = torch.stack([loop(p) for p in parts]) if parts else values.new_zeros(0, 3)
        torch.testing.assert_close(function(values, ptr), want)
    softmax = torch.cat([p.softmax(0) for p in parts]) if parts else values
    torch.testing.assert_close(segment_softmax(values, ptr), softmax)


@pytest.mark.parametrize("function", [segment_sum, segment_mean, segment_max, segment_softmax])
def test_reductions_have_exact_gradients(function):
    values, ptr = make([2, 0, 3, 1])
    assert torch.autograd.gradcheck(lambda v: function(v, ptr), [values])


def test_softmax_survives_large_scores():
    ptr = torch.tensor([0, 2])
    assert segment_softmax(torch.tensor([[1e4], [1e4]]), ptr).view(-1).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("weighted", [False, True])
def test_gather_sum_equals_gather_then_sum_and_differentiates_twice(weighted, monkeypatch):
    monkeypatch.setattr(gather, "EDGES_PER_CHUNK", 2)
    values = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True) if weighted else None
    index, ptr = torch.tensor([2, 0, 2, 3, 1]), torch.tensor([0, 2, 2, 5])
    owner = torch.tensor([0, 0, 2, 2, 2])
    order = torch.argsort(index, stable=True)
    reader, reader_ptr = owner[order], torch.tensor([0, 1, 2, 4, 5])

    def run(v: torch.Tensor, w: torch.Tensor | None) -> torch.Tensor:
        return sum_gathered(v, index, ptr, reader, reader_ptr, w, order)

    rows = values[index] * weight.unsqueeze(1) if weighted else values[index]
    torch.testing.assert_close(run(values, weight), segment_sum(rows, ptr))
    assert torch.autograd.gradcheck(run, [values, weight])
    assert torch.autograd.gradgradcheck(run, [values, weight])


def test_gathering_rows_has_the_exact_gradient_and_differentiates_twice():
    values = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([2, 0, 2, 3, 2])
    edge, ptr = sort_readers(index, 4)
    assert (edge.tolist(), ptr.tolist()) == ([1, 0, 2, 4, 3], [0, 1, 1, 4, 5])
    assert torch.equal(gather_rows(values, index, edge, ptr), values[index])
    assert torch.equal(select_rows(values, index), values[index])
    assert torch.autograd.gradcheck(lambda v: gather_rows(v, index, edge, ptr), [values])
    assert torch.autograd.gradgradcheck(lambda v: gather_rows(v, index, edge, ptr), [values])


def test_readers_for_a_gpu_are_sorted_on_the_cpu():
    index = RowIndex(torch.tensor([2, 0, 2, 3, 2]))
    there = index.map_tensors(lambda rows: rows.to("meta"))  # whose numbers nobody can read
    edge, ptr = there.readers(4)
    assert (edge.device.type, edge.shape, ptr.shape) == ("meta", (5,), (5,))
    assert there.readers(4)[0] is edge
    assert index.readers(4)[0].tolist() == [1, 0, 2, 4, 3]


def test_rows_that_are_made_of_others_are_known_on_the_cpu_and_kept():
    index, places = (
        RowIndex(torch.tensor(rows)).map_tensors(lambda rows: rows.to("meta"))
        for rows in ([2, 0, 3, 2], [3, 1])
    )
    for make, want in (
        (lambda: index.at(places), [2, 0]),
        (lambda: index.derive("half", lambda rows: rows[2:] - 1), [2, 1]),
    ):
        made = make()
        assert (made.rows.device.type, made.rows.shape) == ("meta", (2,))
        assert made.rows_on_cpu.tolist() == want
        assert make() is made
    assert index.at(RowIndex(places.rows)).rows_on_cpu is None  # a GPU alone knows these places


@pytest.mark.gpu
def test_rows_of_an_index_have_the_same_gradient_on_a_gpu():
    values = torch.randn(4, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    index = RowIndex(torch.tensor([2, 0, 2, 3, 2])).map_tensors(Tensor.cuda)
    assert torch.equal(select_rows(values, index), values[index.rows])
    assert torch.autograd.gradcheck(lambda v: select_rows(v, index), [values])


def test_gather_sum_of_nothing_is_zero():
    none = torch.empty(0, dtype=torch.int64)
    assert gather_sum(torch.randn(2, 3), none, torch.tensor([0, 0, 0])).tolist() == [[0.0] * 3] * 2
