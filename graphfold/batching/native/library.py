"""The native library: C code of this folder, compiled once for each instruction set and dtype.

Compiled libraries are looked for beside the sources, where an installed wheel has them, then in the
user's cache. If there is none that can be loaded, the machine's C compiler makes one, which takes a
few seconds.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path

import torch

from graphfold.batching.native.build import (
    FOLDER,
    FUNCTIONS,
    BuildError,
    build,
    is_whole,
    library_name,
    remove_old,
)
from graphfold.errors import EngineError

#: What C calls the dtypes that it computes.
REALS = {torch.float32: "float", torch.float64: "double"}

#: The kinds of `FUNCTIONS`.
KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "s": ctypes.c_char_p, "": None}

_COMPILING = threading.Lock()


def _renew_lock() -> None:
    """The thread that holds the lock does not exist in a forked child."""
    global _COMPILING
    _COMPILING = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(after_in_child=_renew_lock)


def instruction_set() -> str:
    """The instruction set that torch uses; the variable ATEN_CPU_CAPABILITY may say less."""
    return torch.backends.cpu.get_cpu_capability()


@functools.cache
def load(dtype: torch.dtype) -> ctypes.CDLL:
    """The library for a dtype.

    Raises:
        EngineError: if it is not there and cannot be compiled.
    """
    name = library_name(REALS[dtype], instruction_set())
    with _COMPILING:
        for folder in (FOLDER, cache_folder()):
            if folder is not None and is_whole(folder / name):
                try:
                    return _open(folder / name)
                except (OSError, AttributeError):  # it is broken, or lacks a library of its own
                    continue
        try:
            return _build(REALS[dtype])
        except (BuildError, OSError) as error:
            raise EngineError(str(error)) from error


def _build(real: str) -> ctypes.CDLL:
    """Compiles a library into the cache; where it cannot be, it lasts as long as the process."""
    folder = cache_folder()
    if folder is not None:
        try:
            library = build(real, instruction_set(), folder)
        except (BuildError, OSError):  # nothing can be written there, or be loaded from there
            pass
        else:
            remove_old(folder)
            return _open_new(library)
    return _open(build(real, instruction_set(), _folder_of_process()))


def _open_new(library: Path) -> ctypes.CDLL:
    try:
        return _open(library)
    except (OSError, AttributeError):  # a process that has loaded another of this name gets that
        return _open(Path(shutil.copy(library, _folder_of_process())))


def _folder_of_process() -> Path:
    """A folder that is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="graphfold-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@functools.cache
def why_missing(dtype: torch.dtype) -> str | None:
    """The reason why a dtype has no library; None if it has one."""
    if dtype not in REALS:
        return f"native code computes float32 and float64, not {dtype}"
    try:
        load(dtype)
    except EngineError as error:
        return str(error)
    return None


@functools.cache
def operations(dtype: torch.dtype) -> dict[str, int]:
    """The operations of native programs, by name."""
    names = iter(map(load(dtype).operation_name, itertools.count()).__next__, None)
    return {name.decode(): number for number, name in enumerate(names)}


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (arguments, result) in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = [KINDS[kind] for kind in arguments]
        function.restype = KINDS[result]
    return library


def cache_folder() -> Path | None:
    """The user's folder of compiled libraries; None if the user has no home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base).expanduser() / "graphfold" / "native"
