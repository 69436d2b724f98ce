"""A variant that computes something else is not timed."""

from __future__ import annotations

import pytest
import torch

from graphfold.bench.equality import TOLERANCE, require_equal


def test_equal_results_pass() -> None:
    want = [torch.randn(3, 2), torch.zeros(0, 2), torch.zeros(2)]
    require_equal("other", [tensor + TOLERANCE / 1e4 * tensor.abs() for tensor in want], want)


@pytest.mark.parametrize("wrong", [1.5, float("nan"), float("inf")])
def test_the_first_difference_is_named(wrong: float) -> None:
    want = [torch.ones(2), torch.ones(3)]
    got = [torch.ones(2), torch.tensor([1.0, wrong, 1.0])]
    with pytest.raises(RuntimeError, match=r"variant other differs from graphfold in result 1 by"):
        require_equal("other", got, want)


def test_a_missing_result_is_no_equality() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        require_equal("other", [torch.ones(1)], [torch.ones(1), torch.ones(1)])
