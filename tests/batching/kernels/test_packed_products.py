"""Products by packed weights, against the same products of torch in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphfold.batching.kernels import c_kernels, products
from graphfold.batching.kernels.c_compiler import compile_c, find_compiler
from graphfold.batching.kernels.products import (
    FEW_MULTIPLICATIONS,
    Apart,
    multiply,
    pack,
    sum_products,
)
from graphfold.errors import EngineError

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

#: As on a processor without vectors to speak of.
SLOW = "\n".join(f"#undef {name}" for name in ("__AVX512F__", "__AVX__", "__aarch64__"))
EPSILON = {torch.float32: 2**-23, torch.float64: 2**-52}
DTYPES = list(EPSILON)


def assert_near(found: Tensor, left: Tensor, right: Tensor, bias: Tensor | None = None) -> None:
    """A product is as near to the true one as sums of so many terms may be (Higham, 2002, 3.5)."""
    left, right = left.double(), right.double()
    want, size = left @ right, left.abs() @ right.abs()
    if bias is not None:
        want, size = want + bias.double(), size + bias.double().abs()
    terms = left.shape[1] + 2
    assert found.shape == want.shape
    assert ((found.double() - want).abs() <= terms * EPSILON[found.dtype] * size + 1e-300).all()


sizes = st.integers(0, 70)


@st.composite
def rows_apart(draw: st.DrawFn, num_rows: int, dtype: torch.dtype) -> Apart:
    """Rows of some pieces each, of which any may be the same."""
    num_parts, width = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    source = torch.randn(draw(st.integers(1, 30)), width, dtype=dtype)
    return Apart(source, torch.randint(len(source), (num_rows * num_parts,)), num_parts)


@pytest.mark.parametrize("dtype", DTYPES)
@given(num_rows=sizes, num_terms=sizes, num_columns=sizes, lies=st.integers(0, 3), data=st.data())
def test_any_shape(dtype, num_rows, num_terms, num_columns, lies, data):
    weight = torch.randn(num_terms, num_columns, dtype=dtype)
    if lies % 2:  # as the weight of a linear layer does
        weight = weight.T.contiguous().T
    bias = torch.randn(num_columns, dtype=dtype) if lies // 2 else None
    x = torch.randn(num_rows, num_terms + 3, dtype=dtype)[:, :num_terms]
    wide = torch.full((num_rows, num_columns + 5), torch.nan, dtype=dtype)
    found = multiply(x, pack(weight, bias))
    assert_near(found, x, weight, bias)
    assert torch.equal(multiply(x, pack(weight, bias), relu=True), found.relu())
    multiply(x.T.contiguous().T, pack(weight, bias), out=wide[:, 2:-3])
    assert torch.equal(wide[:, 2:-3], found)
    assert wide[:, :2].isnan().all()
    assert wide[:, -3:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(num_rows=sizes, num_columns=sizes, data=st.data())
def test_rows_that_lie_apart(dtype, num_rows, num_columns, data):
    x = data.draw(rows_apart(num_rows, dtype))
    weight = torch.randn(x.num_parts * x.source.shape[1], num_columns, dtype=dtype)
    packed = pack(weight)
    assert torch.equal(multiply(x, packed), multiply(x.gather(), packed))
    assert_near(multiply(x, packed), x.gather(), weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_rows", [0, 1, 70, 256, 257, 600])
@given(num_left=st.integers(0, 150), data=st.data())
def test_sums_over_rows(dtype, num_rows, num_left, data):
    x = data.draw(rows_apart(num_rows, dtype))
    left = torch.randn(num_rows, num_left + 2, dtype=dtype)[:, :num_left]
    found = sum_products(left, x)
    assert_near(found, left.T, x.gather())
    total, sums = found.clone(), torch.ones(num_left, dtype=dtype)
    assert sum_products(left.T.contiguous().T, x, total, sums) is total
    assert_near(total, torch.cat([left, left]).T, torch.cat([x.gather(), x.gather()]))
    turned = found.T.contiguous().T
    assert sum_products(left, x, turned) is turned
    torch.testing.assert_close(turned, total, rtol=1e-3, atol=1e-3)
    ones = torch.ones(num_rows, 1, dtype=dtype)
    assert_near(sums.unsqueeze(1), left.T, ones, torch.ones(1, dtype=dtype))


@pytest.mark.parametrize("num_columns", [1, 15, 16, 17, 129, 300])
def test_the_bits_of_a_row_depend_on_that_row_alone(num_columns):
    x, weight = torch.randn(150, 37), torch.randn(37, num_columns)
    packed = pack(weight, torch.randn(num_columns))
    together = multiply(x, packed)
    for count in (1, 2, 3, 5, 12, 13, 100):
        for first in (0, 7):
            assert torch.equal(multiply(x[first : first + count], packed), together[first:][:count])


@pytest.mark.parametrize(("num_rows", "num_columns"), [(3, 900), (100, 100), (800, 40), (333, 333)])
def test_threads_share_the_work_and_keep_the_bits(num_rows, num_columns):
    x, weight = torch.randn(num_rows, 500), torch.randn(500, num_columns)
    assert num_rows * 500 * num_columns > FEW_MULTIPLICATIONS
    rows, before = Apart(x, torch.arange(num_rows)), torch.get_num_threads()
    found = []
    try:
        for num_threads in (1, 3):
            torch.set_num_threads(num_threads)
            product = multiply(x, pack(weight))
            found.append((product, sum_products(product, rows)))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_what_is_not_finite_stays_in_its_row_and_column():
    x, weight = torch.ones(20, 30), torch.ones(30, 40)
    x[7, 3], weight[5, 11] = torch.nan, torch.inf
    found = multiply(x, pack(weight))
    expected = torch.full((20, 40), 30.0)
    expected[:, 11] = torch.inf
    expected[7] = torch.nan
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=0, atol=0)
    found = multiply(-x, pack(weight), relu=True)
    torch.testing.assert_close(found, (-expected).relu(), equal_nan=True, rtol=0, atol=0)


def forget_kernels() -> None:
    products.load.cache_clear()
    products._compile.cache_clear()


@pytest.fixture
def anew() -> Iterator[None]:
    """Kernels are compiled in a test, and again after it."""
    forget_kernels()
    yield
    forget_kernels()


def test_kernels_are_compiled_once_and_in_the_background(anew, monkeypatch):
    sources = []

    def compile_and_note(source: str):
        sources.append(source)
        return compile_c(source)

    monkeypatch.setattr(c_kernels, "compile_c", compile_and_note)
    products.load_in_background(torch.float64)
    assert products.load(torch.float64) is products.load(torch.float64)
    assert len(sources) == 1


def test_who_has_quick_kernels(anew, monkeypatch):
    assert not products.are_quick(torch.bfloat16)
    monkeypatch.setattr(c_kernels, "compile_c", lambda source: compile_c(f"{SLOW}\n{source}"))
    assert not products.are_quick(torch.float32)
    left, right = torch.rand(30, 20), torch.rand(20, 10)
    assert_near(multiply(left, pack(right)), left, right)


def test_a_compiler_that_fails_is_named_when_its_kernels_are_needed(anew, monkeypatch):
    monkeypatch.setenv("CC", "false")
    products.load_in_background(torch.float32)
    with pytest.raises(EngineError, match="false failed"):
        pack(torch.rand(2, 3))
    monkeypatch.undo()
    assert_near(
        multiply(torch.ones(1, 2), pack(torch.ones(2, 3))), torch.ones(1, 2), torch.ones(2, 3)
    )
