"""The C compiler of this machine."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphfold.errors import EngineError

#: Results have to be those of IEEE arithmetic; errno and traps are not looked at.
FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
#: What torch's own kernels are kept to (ATEN_CPU_CAPABILITY) -> the processor to compile for.
MARCH = {"default": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
#: Seconds; a kernel takes a tenth of one.
TIMEOUT = 60

#: A kernel that does nothing.
_TRIAL = """\
#include <math.h>
#include <stdint.h>
void kernel(int64_t number) { (void)number; }
"""


def find_compiler() -> list[str] | None:
    """The command of the C compiler: that of the environment variable CC, cc, gcc or clang."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in (given, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return None


def compile_c(source: str) -> ctypes.CDLL:
    """The functions of a source, which may call those of libm. Nothing stays on disk.

    Args:
        source: in C; what it does not declare static can be called.

    Raises:
        EngineError: if there is no compiler, or it fails.
    """
    command = find_compiler()
    if command is None:
        raise EngineError("no C compiler was found; install one, or name it in CC")
    with tempfile.TemporaryDirectory(prefix="graphfold-") as folder:
        path = Path(folder, "kernel.c")
        path.write_text(source)
        return _compile(command, path)


def declare(
    library: ctypes.CDLL, name: str, arguments: str, gives: type[ctypes.c_int64] | None = None
) -> Callable[..., Any]:
    """A function of a library.

    Args:
        library: the library.
        name: of the function.
        arguments: a letter for each: "p" for a pointer, which is given as a number or None, "i" for
            an integer of 64 bits.
        gives: what it returns.
    """
    function = library[name]
    kinds: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int64}
    function.argtypes = [kinds[kind] for kind in arguments]
    function.restype = gives
    return function


@functools.cache
def can_compile() -> bool:
    """Whether a kernel can be compiled and loaded here, which is tried once."""
    try:
        declare(compile_c(_TRIAL), "kernel", "i")(1)
    except (EngineError, OSError, ValueError):  # no compiler, no loading from there, a broken CC
        return False
    return True


def _compile(command: Sequence[str], path: Path) -> ctypes.CDLL:
    """What is in a file, compiled beside it."""
    for number, further in enumerate(_further()):
        library = path.with_name(f"kernel{number}.so")  # a name is loaded once only
        files = [str(path), "-lm", "-o", str(library)]
        found = _run([*command, *FLAGS, *_vectors(), *further, *files])
        lines = found.stderr.strip().splitlines() or ["no message"]
        if found.returncode == 0:
            try:
                return ctypes.CDLL(str(library))
            except OSError as error:  # a compiler may take -fopenmp and have no library for it
                lines = [str(error)]
    raise EngineError(f"{shlex.join(command)} failed: {lines[0]}")


def _further() -> Sequence[Sequence[str]]:
    """What not every compiler has, the best first: threads, and code for one processor.

    It is this very processor, unless torch is kept to an instruction set.
    """
    march = f"-march={MARCH.get(os.environ.get('ATEN_CPU_CAPABILITY', ''), 'native')}"
    return (march, "-fopenmp"), (march, "-fopenmp-simd"), ("-fopenmp-simd",)


def _vectors() -> Sequence[str]:
    """x86 compilers avoid the largest vectors unless told otherwise."""
    return ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{command[0]} could not be run: {error}") from error
