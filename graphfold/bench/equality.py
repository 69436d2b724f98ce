"""Variants are compared before they are timed: a fast wrong answer is no baseline."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

#: Of the norm. Sums in another order differ by 1e-6 in single precision, and by a few thousandths
#: with product kernels that round to bfloat16. Single values may differ by more: where the sum that
#: a relu cuts off is next to zero, its gradient is there or not.
TOLERANCE = 1e-2


def require_equal(variant: str, got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    """Compares what a variant computed with what graphfold did.

    Args:
        variant: its name.
        got: its tensors.
        want: graphfold's, in the same order.

    Raises:
        RuntimeError: with the position of the first tensor that differs.
    """
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        a, b = a.detach().to_dense(), b.detach().to_dense()
        error = float((a - b).norm() / b.norm().clamp(min=1e-30)) if b.numel() else 0.0
        if not error <= TOLERANCE:
            raise RuntimeError(
                f"variant {variant} differs from graphfold in result {index} by {error:.2g} of its "
                "norm, so their speeds cannot be compared"
            )
