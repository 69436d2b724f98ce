"""Builds the native library with the machine's C compiler, or with `zig cc` for another machine.

It needs neither torch nor the rest of graphfold: hatch_build.py runs it while a wheel is made.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
SOURCES = (
    "vectors.h",
    "system.h",
    "threads.h",
    "tiles.h",
    "packing.h",
    "products.h",
    "functions.h",
    "elementwise.h",
    "row_sums.h",
    "program.h",
    "rows.h",
    "pass.c",
)

#: Results have to be those of IEEE arithmetic; errno and traps are not looked at.
FLAGS = (
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fopenmp-simd",  # its loops in vectors; threads are our own
    "-falign-loops=64",  # loops of a few instructions take twice as long where they lie badly
)
#: What torch calls an instruction set -> the compiler's options for it.
INSTRUCTION_SETS = {
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
#: Further ones of `zig cc`: no symbols but those of functions that are offered, and vectors for the
#: ends of short runs, too, as gcc has them.
ZIG_FLAGS = ("-s", "-mllvm", "-epilogue-vectorization-minimum-VF=4")
#: All others: what every processor of a kind has.
PLAIN = "plain"
#: What C calls the dtypes.
REALS = ("float", "double")
#: What Python calls: name -> the kinds of its arguments and result. p: an address, i: an integer,
#: s: a text; "": there is none.
FUNCTIONS = {
    "run_pass": ("piippi", "i"),
    "pull_rows": ("piiipppppp", ""),
    "number_rows": ("piip", "i"),
    "lanes": ("", "i"),
    "packed_size": ("ii", "i"),
    "pack": ("piipiip", ""),
    "multiply": ("piipipiii", ""),
    "sum_products": ("piippiiippii", "i"),
    "operation_name": ("i", "s"),
}
#: Seconds; a library takes some, with sanitizers and on a busy machine many.
TIMEOUT = 300
#: For another machine: zig compiles the C library of that system first, once.
ZIG_TIMEOUT = 900


class Target(NamedTuple):
    """A kind of machine that libraries are made for.

    Args:
        system: as `platform.system()` has it there.
        machine: as `platform.machine()` has it there.
        tag: the platform of its wheels.
        triple: what zig calls it; "" for this machine, whose own compiler is asked.
    """

    system: str
    machine: str
    tag: str = ""
    triple: str = ""

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """The levels of CPUs that a wheel has libraries for."""
        is_x86 = self.machine.lower() in ("x86_64", "amd64")
        return tuple(INSTRUCTION_SETS) if is_x86 else (PLAIN,)

    @property
    def can_run_here(self) -> bool:
        """True if this machine is of the same kind."""
        return (self.system, self.machine) == (platform.system(), platform.machine())

    def options(self, instructions: str) -> list[str]:
        """The flags of the compiler."""
        vectors = INSTRUCTION_SETS.get(instructions, ())
        if not self.triple:
            return list(vectors)
        return [
            *("-target", self.triple),
            *(word.replace("x86-64-v", "x86_64_v") for word in vectors),  # as zig spells it
            *ZIG_FLAGS,
        ]


#: Platform tag -> the machines that wheels are made for: those that torch has wheels for.
TARGETS = {
    target.tag: target
    for target in (
        Target("Linux", "x86_64", "manylinux2014_x86_64", "x86_64-linux-gnu.2.17"),
        Target("Linux", "aarch64", "manylinux2014_aarch64", "aarch64-linux-gnu.2.17"),
        Target("Darwin", "arm64", "macosx_11_0_arm64", "aarch64-macos.11.0"),
        Target("Windows", "AMD64", "win_amd64", "x86_64-windows-gnu"),
    )
}


def this_machine() -> Target:
    """The machine that this runs on."""
    return Target(platform.system(), platform.machine())


#: Libraries as `library_name` names them, and what is left of unfinished ones.
_OURS = re.compile(r"pass-(float|double)-[\w.-]+-[0-9a-f]{16}\.so(\.\w+\.part)?")
#: Seconds that a library of other sources is kept.
KEPT = 30 * 24 * 3600


class BuildError(Exception):
    """A library that cannot be built; the message gives the reason and the remedy."""


def library_name(real: str, instructions: str, target: Target | None = None) -> str:
    """The name of a library, which tells the version of its sources and how they are compiled.

    Args:
        real: "float" or "double".
        instructions: a name of `INSTRUCTION_SETS`, or another for the compiler's default.
        target: the machine that it is for; None: this one.
    """
    target = target or this_machine()
    instructions = instructions if instructions in INSTRUCTION_SETS else PLAIN
    digest = hashlib.sha256(repr((FLAGS, INSTRUCTION_SETS, ZIG_FLAGS)).encode())
    for source in SOURCES:
        digest.update((FOLDER / source).read_bytes())
    machine = f"{target.system}-{target.machine}-{instructions}".lower()
    return f"pass-{real}-{machine}-{digest.hexdigest()[:16]}.so"


def build(real: str, instructions: str, folder: Path, target: Target | None = None) -> Path:
    """Compiles a library into a folder, atomically.

    Args:
        real: "float" or "double".
        instructions: a name of `INSTRUCTION_SETS`, or another for the compiler's default.
        folder: where it goes.
        target: the machine that it is for; None: this one. For another, the compiler has to be
            `zig cc`.

    Raises:
        BuildError: if there is no C compiler, or it fails.
        OSError: if nothing can be written there.
    """
    target = target or this_machine()
    command = compiler()
    if command is None:
        named = os.environ.get("CC")
        raise BuildError(
            f"no C compiler was found: there is no '{named}', which the environment variable CC "
            "names; correct or unset it"
            if named
            else "no C compiler was found; install one (gcc or clang), or name it in the "
            "environment variable CC"
        )
    name = library_name(real, instructions, target)
    folder.mkdir(parents=True, exist_ok=True)
    # It is made where it goes, so that a folder that nothing can be loaded from is no surprise.
    number, made = tempfile.mkstemp(prefix=f"{name}.", suffix=".part", dir=folder)
    os.close(number)
    part = Path(made)
    try:
        _compile(command, real, instructions, part, target)
        _put(part, folder / name)
    finally:
        part.unlink(missing_ok=True)
    return folder / name


def _put(part: Path, path: Path) -> None:
    """Gives a whole file its name, so that others see all of it or nothing."""
    with part.open("r+b") as file:  # Windows writes out what may be written to
        os.fsync(file.fileno())  # or a name may outlive a crash, and its contents not
    part.chmod(0o644)
    part.replace(path)


def is_whole(path: Path) -> bool:
    """True if a library is there and not cut off: loading such a one may end the process.

    An ELF file ends with the table of its sections, or behind it. Others are left to the loader.
    """
    try:
        with path.open("rb") as file:
            head, size = file.read(64), os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(head) < 64 or not any(head):
        return False
    if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, lowest byte first
        return True
    table, entry, count = (int.from_bytes(head[a:b], "little") for a, b in ELF_SECTIONS)
    return size >= table + entry * count


#: Where the head of an ELF file says where the table of sections is, how long an entry, how many.
ELF_SECTIONS = ((40, 48), (58, 60), (60, 62))


def remove_old(folder: Path) -> None:
    """Deletes libraries of other sources from a folder, once they are older than `KEPT`."""
    current = {library_name(real, i) for real in REALS for i in (*INSTRUCTION_SETS, PLAIN)}
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in current:
            try:
                if time.time() - path.stat().st_mtime > KEPT:
                    path.unlink()
            except OSError:  # another process was quicker
                continue


def _compile(
    command: Sequence[str], real: str, instructions: str, library: Path, target: Target
) -> None:
    """Compiles a library, and loads it once if it is for a machine like this one."""
    defined = [f"-Dreal={real}", *(["-DIS_DOUBLE"] if real == "double" else [])]
    files = [str(FOLDER / "pass.c"), "-lm", "-o", str(library)]
    options = [*FLAGS, *target.options(instructions), *defined]
    done = _run([*command, *options, *files], ZIG_TIMEOUT if target.triple else TIMEOUT)
    fault = "" if done.returncode == 0 else _first_error(done.stderr)
    if not fault and target.can_run_here:
        try:
            ctypes.CDLL(str(library))
        except OSError as error:  # a folder from which nothing may be loaded, or an empty file
            fault = str(error)
    elif not fault and not is_whole(library):
        fault = "it has written no library"
    if fault:
        other = (
            f"'zig cc', which compiles for {target.tag}," if target.triple else "another C compiler"
        )
        raise BuildError(
            f"{shlex.join(command)} failed: {fault}; name {other} in the environment variable CC"
        )


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[0])


def compiler() -> list[str] | None:
    """The command of the C compiler: that which the environment variable CC names, if it names one,
    else cc, gcc or clang; None where it is not there.
    """
    given = shlex.split(os.environ.get("CC", ""))
    candidates = [given] if given else [["cc"], ["gcc"], ["clang"]]
    return next((command for command in candidates if shutil.which(command[0])), None)


def _run(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(
            f"{command[0]} could not be run: {error}; name another C compiler in the environment "
            "variable CC"
        ) from error
