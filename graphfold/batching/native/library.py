"""The native library: C code of this folder, compiled once for each instruction set and dtype.

Compiled libraries are looked for beside the sources, where an installed wheel has them, then in the
user's cache. If there is none, the machine's C compiler makes one, which takes a few seconds.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from pathlib import Path

import torch

from graphfold.batching.native.build import FOLDER, build, library_name
from graphfold.errors import EngineError

#: What C calls the dtypes that it computes.
REALS = {torch.float32: "float", torch.float64: "double"}

_COMPILING = threading.Lock()


def instruction_set() -> str:
    """What torch uses on this machine; the environment variable ATEN_CPU_CAPABILITY may say less."""
    return torch.backends.cpu.get_cpu_capability()


@functools.cache
def load(dtype: torch.dtype) -> ctypes.CDLL:
    """The library for a dtype.

    Raises:
        EngineError: if it is not there and cannot be compiled.
    """
    with _COMPILING:
        name = library_name(REALS[dtype], instruction_set())
        for folder in (FOLDER, _cache()):
            if (folder / name).is_file():
                return _open(folder / name)
        _cache().mkdir(parents=True, exist_ok=True)
        return _open(build(REALS[dtype], instruction_set(), _cache()))


@functools.cache
def why_missing(dtype: torch.dtype) -> str | None:
    """Why there is no library for a dtype; None if there is one."""
    if dtype not in REALS:
        return f"native code computes float32 and float64, not {dtype}"
    try:
        load(dtype)
    except (EngineError, OSError) as error:
        return str(error)
    return None


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    integer, address = ctypes.c_int64, ctypes.c_void_p
    kinds = {"p": address, "i": integer}
    for name, arguments, result in (
        ("run_pass", "piippi", integer),
        ("pull_rows", "piiipppp", None),
        ("packed_size", "ii", integer),
        ("pack", "piipiip", None),
        ("multiply", "piipipiii", None),
        ("sum_products", "piippiiippiii", integer),
    ):
        function = getattr(library, name)
        function.argtypes = [kinds[kind] for kind in arguments]
        function.restype = result
    return library


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "graphfold" / "native"
