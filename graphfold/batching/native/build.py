"""Builds the native library with the machine's C compiler; needs no torch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from graphfold.errors import EngineError

FOLDER = Path(__file__).parent
SOURCES = ("vectors.h", "products.h", "functions.h", "elementwise.h", "program.h", "pass.c")

#: Results have to be those of IEEE arithmetic; errno and traps are not looked at.
FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
#: What torch calls an instruction set -> the compiler's options for it.
INSTRUCTION_SETS = {
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
#: What C calls the dtypes.
REALS = ("float", "double")
TIMEOUT = 120


def library_name(real: str, instructions: str) -> str:
    """The name of a library, which tells the version of its sources."""
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update((FOLDER / source).read_bytes())
    machine = f"{platform.system()}-{platform.machine()}-{instructions}".lower()
    return f"pass-{real}-{machine}-{digest.hexdigest()[:16]}.so"


def build(real: str, instructions: str, folder: Path) -> Path:
    """Compiles a library into a folder, whole or not at all.

    Args:
        real: "float" or "double".
        instructions: a name of `INSTRUCTION_SETS`, or another for the compiler's default.
        folder: where it goes.

    Raises:
        EngineError: if there is no C compiler, or it fails.
    """
    command = _compiler()
    if command is None:
        raise EngineError(
            "no C compiler was found; install one (gcc or clang), or name it in the environment "
            "variable CC"
        )
    defined = [f"-Dreal={real}", *(["-DIS_DOUBLE"] if real == "double" else [])]
    vectors = INSTRUCTION_SETS.get(instructions, ())
    target = folder / library_name(real, instructions)
    with tempfile.TemporaryDirectory(prefix="graphfold-") as made:
        for number, threads in enumerate((["-fopenmp"], ["-fopenmp-simd"])):
            library = Path(made, f"{number}.so")  # a name is loaded once only
            files = [str(FOLDER / "pass.c"), "-lm", "-o", str(library)]
            done = _run([*command, *FLAGS, *vectors, *threads, *defined, *files])
            lines = done.stderr.strip().splitlines() or ["no message"]
            if done.returncode == 0:
                try:
                    ctypes.CDLL(str(library))
                except OSError as error:  # a compiler may take -fopenmp and have no library for it
                    lines = [str(error)]
                    continue
                part = target.with_suffix(f".{os.getpid()}")
                shutil.copy(library, part)
                part.replace(target)
                return target
    raise EngineError(f"{shlex.join(command)} failed: {lines[0]}")


def _compiler() -> list[str] | None:
    """The command of the C compiler: that of the environment variable CC, cc, gcc or clang."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in (given, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{command[0]} could not be run: {error}") from error
