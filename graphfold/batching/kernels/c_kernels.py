"""Kernels in C that are compiled as they are, one library for each dtype."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from graphfold.batching.kernels.c_compiler import compile_c

#: Dtypes that there are kernels for -> what C calls them.
REALS = {torch.float32: "float", torch.float64: "double"}


def compile_kernels(name: str, dtype: torch.dtype, defined: str = "") -> ctypes.CDLL:
    """The functions of a source beside this file, for one dtype.

    Args:
        name: of the source, which may use vectors.h.
        dtype: one of `REALS`.
        defined: further lines that come first.

    Raises:
        EngineError: if they cannot be compiled.
    """
    folder = Path(__file__).parent
    paths = (folder.with_name("native") / "vectors.h", folder / name)
    sources = [path.read_text() for path in paths]
    return compile_c("\n".join([f"#define real {REALS[dtype]}", defined, *sources]))
