"""Native products, against the same products of torch in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphfold.batching.native.library import REALS, load, why_missing
from graphfold.batching.native.linear import FEW_MULTIPLICATIONS, multiply, sum_products

pytestmark = pytest.mark.skipif(
    why_missing(torch.float32) is not None, reason="there is no native library"
)
EPSILON = {torch.float32: 2**-23, torch.float64: 2**-52}
sizes = st.integers(0, 70)
all_dtypes = pytest.mark.parametrize("dtype", REALS)


def assert_near(actual: Tensor, left: Tensor, right: Tensor, bias: Tensor | None = None) -> None:
    """A product is as near to the true one as sums of so many terms may be (Higham, 2002, 3.5)."""
    left, right = left.double(), right.double()
    want, size = left @ right, left.abs() @ right.abs()
    if bias is not None:
        want, size = want + bias.double(), size + bias.double().abs()
    terms = left.shape[1] + 2
    assert actual.shape == want.shape
    assert ((actual.double() - want).abs() <= terms * EPSILON[actual.dtype] * size + 1e-300).all()


@all_dtypes
@given(num_rows=sizes, num_terms=sizes, num_columns=sizes, lies=st.integers(0, 3))
def test_any_shape(dtype, num_rows, num_terms, num_columns, lies):
    weight = torch.randn(num_terms, num_columns, dtype=dtype)
    if lies % 2:  # as the weight of a linear layer does
        weight = weight.T.contiguous().T
    bias = torch.randn(num_columns, dtype=dtype) if lies // 2 else None
    x = torch.randn(num_rows, num_terms + 3, dtype=dtype)[:, :num_terms]
    actual = multiply(x, weight, bias)
    assert_near(actual, x, weight, bias)
    assert torch.equal(multiply(x.T.contiguous().T, weight, bias), actual)


@all_dtypes
@given(num_rows=sizes, num_terms=sizes, num_columns=sizes)
def test_rows_are_written_where_they_belong(dtype, num_rows, num_terms, num_columns):
    library = load(dtype)
    x = torch.randn(num_rows, num_terms + 2, dtype=dtype)
    weight = torch.randn(num_terms, num_columns + 4, dtype=dtype)[:, 1:-3]
    packed = torch.full((library.packed_size(num_terms, num_columns) + 1,), 7.0, dtype=dtype)
    library.pack(
        weight.data_ptr(), *weight.stride(), None, num_terms, num_columns, packed.data_ptr()
    )
    assert packed[-1] == 7
    wide = torch.full((num_rows + 1, num_columns + 5), torch.nan, dtype=dtype)
    size = wide.element_size()
    library.multiply(
        x.data_ptr() + size,
        x.stride(0),
        num_terms,
        packed.data_ptr(),
        num_columns,
        wide.data_ptr() + 2 * size,
        wide.stride(0),
        num_rows,
        1,
    )
    assert_near(wide[:-1, 2:-3], x[:, 1:-1], weight)
    for outside in (wide[:, :2], wide[:, -3:], wide[-1]):
        assert outside.isnan().all()


@all_dtypes
@pytest.mark.parametrize("num_rows", [0, 1, 70, 256, 257, 600])
@given(num_left=st.integers(0, 150), width=st.integers(0, 90), has_sums=st.booleans())
def test_sums_over_rows(dtype, num_rows, num_left, width, has_sums):
    left = torch.randn(num_rows, num_left + 2, dtype=dtype)[:, :num_left]
    x = torch.randn(num_rows, width + 1, dtype=dtype)[:, 1:]
    sums = torch.ones(num_left, dtype=dtype) if has_sums else None
    actual = sum_products(left, x, sums)
    assert_near(actual, left.T, x)
    torch.testing.assert_close(sum_products(left.T.contiguous().T, x), actual, rtol=0, atol=0)
    if sums is not None:
        ones = torch.ones(num_rows, 1, dtype=dtype)
        assert_near(sums.unsqueeze(1), left.T, ones, torch.ones(1, dtype=dtype))


@all_dtypes
@given(
    num_rows=st.integers(0, 300),
    num_left=st.integers(1, 40),
    num_parts=st.integers(1, 4),
    width=st.integers(1, 40),
)
def test_sums_over_rows_that_lie_apart(dtype, num_rows, num_left, num_parts, width):
    source = torch.randn(20, width + 2, dtype=dtype)
    row = torch.randint(20, (num_rows, num_parts))
    left = torch.randn(num_rows, num_left, dtype=dtype)
    total = torch.full((num_left, num_parts * width), torch.nan, dtype=dtype)
    assert load(dtype).sum_products(
        left.data_ptr(),
        num_left,
        num_left,
        source.data_ptr() + source.element_size(),
        row.data_ptr(),
        source.stride(0),
        num_parts,
        width,
        total.data_ptr(),
        None,
        num_rows,
        1,
    )
    x = source[:, 1:-1][row].reshape(num_rows, num_parts * width)
    assert_near(total, left.T, x)


@all_dtypes
@pytest.mark.parametrize("num_columns", [1, 15, 16, 17, 129, 300])
def test_the_bits_of_a_row_depend_on_that_row_alone(num_columns, dtype):
    x, weight = torch.randn(150, 37, dtype=dtype), torch.randn(37, num_columns, dtype=dtype)
    bias = torch.randn(num_columns, dtype=dtype)
    together = multiply(x, weight, bias)
    for count in (1, 2, 3, 5, 12, 13, 100):
        for first in (0, 7):
            own = multiply(x[first : first + count], weight, bias)
            assert torch.equal(own, together[first:][:count])


@pytest.mark.parametrize(("num_rows", "num_columns"), [(3, 900), (100, 100), (800, 40), (333, 333)])
def test_threads_share_the_work_and_keep_the_bits(num_rows, num_columns):
    x, weight = torch.randn(num_rows, 500), torch.randn(500, num_columns)
    assert num_rows * 500 * num_columns > FEW_MULTIPLICATIONS
    actual = []
    for num_threads in (1, 3):
        torch.set_num_threads(num_threads)
        product, sums = multiply(x, weight), torch.zeros(num_columns)
        actual.append((product, sum_products(product, x, sums), sums))
    for one, other in zip(*actual, strict=True):
        assert torch.equal(one, other)


@all_dtypes
def test_numbers_that_are_not_finite_stay_in_their_row_and_column(dtype):
    x, weight = torch.ones(20, 30, dtype=dtype), torch.ones(30, 40, dtype=dtype)
    x[7, 3], weight[5, 11] = torch.nan, torch.inf
    expected = torch.full((20, 40), 30.0, dtype=dtype)
    expected[:, 11] = torch.inf
    expected[7] = torch.nan
    torch.testing.assert_close(multiply(x, weight), expected, equal_nan=True, rtol=0, atol=0)
