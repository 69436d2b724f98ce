"""Functions for kernels that Triton itself lacks. Only this file imports Triton by its head."""

from __future__ import annotations

import triton
import triton.language as tl


def _tanh(x):  # type: ignore[no-untyped-def]  # the compiler reads annotations, too
    """The hyperbolic tangent, to three units in the last place; +-1 at +-infinity, NaN for NaN.

    Below 0.625 the rational function of the Cephes library (S. L. Moshier, `tanh.c`), where the
    formula with exp would lose digits; above it 1 - 2 / (exp(2 |x|) + 1), which cannot overflow:
    an infinite exp leaves 1.
    """
    z = x * x
    above = (
        -9.64399179425052238628e-1 * z - 9.92877231001918586564e1
    ) * z - 1.61468768441708447952e3
    below = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z
    small = x + x * z * (above / (below + 4.84406305325125486048e3))
    size = 1 - 2 / (tl.exp(2 * tl.abs(x)) + 1)
    return tl.where(tl.abs(x) < 0.625, small, tl.where(x < 0, -size, size))


#: What kernels call.
tanh = triton.jit(_tanh)
