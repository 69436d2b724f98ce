"""Sums of messages that are never held, against torch's operations one after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from graphfold.batching.kernels import c_kernels, message_sum
from graphfold.batching.kernels.c_compiler import compile_c, find_compiler
from graphfold.batching.kernels.message_sum import FEW_NUMBERS, Messages, can_sum

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
DTYPES = (torch.float32, torch.float64)


@st.composite
def sums(draw: st.DrawFn) -> tuple[int, int, Messages]:
    """A number of rows and of kinds, and messages of these rows with addends of these kinds."""
    counts = draw(st.lists(st.integers(0, 4), max_size=12))
    num_rows, num_edges = draw(st.integers(1, 9)), sum(counts)
    num_kinds = draw(st.integers(1, 3))
    is_own, is_moved = draw(st.booleans()), draw(st.booleans())
    num_rows = num_rows if is_moved or not is_own else max(num_rows, len(counts))
    return (
        num_rows,
        num_kinds,
        Messages(
            read=torch.randint(num_rows, (num_edges,)),
            ptr=torch.tensor([0, *counts]).cumsum(0),
            weight=torch.randn(num_edges).double() if draw(st.booleans()) else None,
            kind=torch.randint(num_kinds, (num_edges,)) if draw(st.booleans()) else None,
            own=torch.randn(len(counts)).double() if is_own else None,
            previous=torch.randint(num_rows, (len(counts),)) if is_own and is_moved else None,
        ),
    )


def some_messages(num_rows: int, num_segments: int, num_kinds: int) -> Messages:
    """Three edges for every segment, with everything that there can be."""
    num_edges = 3 * num_segments
    return Messages(
        torch.randint(num_rows, (num_edges,)),
        torch.arange(0, num_edges + 1, 3),
        torch.randn(num_edges).double(),
        torch.randint(num_kinds, (num_edges,)),
        torch.randn(num_segments).double(),
        torch.randint(num_rows, (num_segments,)),
    )


def in_dtype(messages: Messages, dtype: torch.dtype) -> Messages:
    weight, own = messages.weight, messages.own
    return messages._replace(
        weight=None if weight is None else weight.to(dtype),
        own=None if own is None else own.to(dtype),
    )


def slowly(values: Tensor, messages: Messages, addend: Tensor | None) -> Tensor:
    """Every message is a row."""
    read, ptr, weight, kind, own, previous = messages
    message = values[read]
    if addend is not None:
        message = torch.relu(message + addend[kind])
    if weight is not None:
        message = message * weight.unsqueeze(1)
    segment = torch.repeat_interleave(torch.arange(len(ptr) - 1), ptr.diff())
    total = values.new_zeros(len(ptr) - 1, values.shape[1]).index_add(0, segment, message)
    if own is not None:
        rows = values[: len(own)] if previous is None else values[previous]
        total = total + own.unsqueeze(1) * rows
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@given(given=sums(), width=st.integers(0, 80))
def test_any_messages(dtype, given, width):
    num_rows, num_kinds, messages = given
    values = torch.randn(num_rows, width).double().requires_grad_()
    addend = None
    if messages.kind is not None:
        addend = torch.randn(num_kinds, width).double().requires_grad_()
    wanted = [values] if addend is None else [values, addend]
    want = slowly(values, messages, addend)
    outside = torch.randn_like(want)
    gradients = grad(want, wanted, outside)
    here = [tensor.detach().to(dtype).requires_grad_() for tensor in wanted]
    messages, of_here = in_dtype(messages, dtype), here[1] if addend is not None else None
    assert can_sum(here[0], messages, of_here)
    found = message_sum.message_sum(here[0], messages, of_here)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {}
    torch.testing.assert_close(found.double(), want, **tolerance)
    for one, other in zip(grad(found, here, outside.to(dtype)), gradients, strict=True):
        torch.testing.assert_close(one.double(), other, **tolerance)


def test_it_can_be_differentiated_twice():
    messages = some_messages(5, 4, 2)
    values = torch.randn(5, 3).double().requires_grad_()
    addend = torch.randn(2, 3).double().requires_grad_()
    linear = messages._replace(kind=None)
    for function, tensors in (
        (lambda v, a: message_sum.message_sum(v, messages, a), (values, addend)),
        (lambda v: message_sum.message_sum(v, linear), (values,)),
        (lambda v: message_sum.message_sum(v, linear._replace(previous=None)), (values,)),
    ):
        assert gradcheck(function, tensors)
        assert gradgradcheck(function, tensors)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("width", [100, 333])
def test_threads_change_no_bit(width):
    num_segments = FEW_NUMBERS // width  # with three edges each they are shared out
    messages = in_dtype(some_messages(500, num_segments, 7), torch.float32)
    values, addend = (
        torch.randn(500, width).requires_grad_(),
        torch.randn(7, width).requires_grad_(),
    )
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        total = message_sum.message_sum(values, messages, addend)
        results.append([total, *grad(total.square().sum(), [values, addend])])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_nan_and_infinity_go_where_torch_lets_them_go():
    values = torch.tensor([[float("nan"), float("inf"), -float("inf"), 1.0]] * 2)
    messages = Messages(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), kind=torch.tensor([0, 0]))
    for width in (4, 40):
        rows = values.repeat(1, width // 4).requires_grad_()
        addend = torch.zeros(1, width, requires_grad=True)
        want, found = (
            slowly(rows, messages, addend),
            message_sum.message_sum(rows, messages, addend),
        )
        torch.testing.assert_close(found, want, equal_nan=True)
        outside = torch.ones_like(want)
        for one, other in zip(
            grad(found, [rows, addend], outside), grad(want, [rows, addend], outside), strict=True
        ):
            torch.testing.assert_close(one, other)


def test_rows_and_factors_may_lie_apart():
    messages = in_dtype(some_messages(6, 5, 2), torch.float32)
    values, addend = (
        torch.randn(20, 12).T[:6, ::2],
        torch.randn(10, 4).T[:2].contiguous().repeat(1, 1),
    )
    want = slowly(values, messages, addend)
    apart = messages._replace(own=torch.stack([messages.own, messages.own], 1)[:, 0])
    torch.testing.assert_close(message_sum.message_sum(values, apart, addend), want)


def test_what_it_cannot_do_is_known_before():
    messages = Messages(torch.tensor([0]), torch.tensor([0, 1]))
    values = torch.ones(1, 2)
    assert can_sum(values, messages)
    assert not can_sum(values.half(), messages)
    assert not can_sum(values.to("meta"), messages)
    kind = torch.tensor([0])
    assert can_sum(values, messages._replace(kind=kind), torch.ones(1, 2))
    for other, addend in (
        (messages, torch.ones(1, 2)),
        (messages._replace(kind=kind), None),
        (messages._replace(kind=kind), torch.ones(1, 3)),
        (messages._replace(kind=kind.int()), torch.ones(1, 2)),
        (messages._replace(kind=torch.tensor([0, 0])), torch.ones(1, 2)),
        (messages._replace(weight=torch.ones(2)), None),
        (messages._replace(own=torch.ones(1, 1)), None),
        (messages._replace(weight=torch.ones(1, dtype=torch.float64)), None),
    ):
        assert not can_sum(values, other, addend)
    assert not can_sum(values, messages._replace(weight=torch.ones(1, requires_grad=True)))
    assert not can_sum(values, messages._replace(own=torch.ones(1, requires_grad=True)))


@pytest.mark.parametrize("kind", [-1, 2])
def test_a_kind_that_there_is_not_is_an_error(kind):
    messages = Messages(torch.tensor([0]), torch.tensor([0, 1]), kind=torch.tensor([kind]))
    with pytest.raises(IndexError, match="none of the 2 addends"):
        message_sum.message_sum(torch.ones(1, 3), messages, torch.ones(2, 3))


def test_a_compiler_that_fails_is_said_once(monkeypatch):
    def fail(source: str) -> None:
        compile_c("no C at all")

    monkeypatch.setattr(c_kernels, "compile_c", fail)
    message_sum._is_ready.cache_clear()
    message_sum._load.cache_clear()
    messages = Messages(torch.tensor([0]), torch.tensor([0, 1]))
    with pytest.warns(UserWarning, match="summed without kernels: .* failed"):
        assert not can_sum(torch.ones(1, 2), messages)
    assert not can_sum(torch.ones(1, 2), messages)
    monkeypatch.undo()
    message_sum._is_ready.cache_clear()
    assert can_sum(torch.ones(1, 2), messages)
