"""Makes what is published: a wheel for each kind of machine and the sdist, and checks them.

    make wheels
    python scripts/wheels.py --dist FOLDER macosx_11_0_arm64    # or some of them, elsewhere

`zig cc` compiles the native libraries of all systems on one machine. Each wheel passes `twine
check`, those of Linux `auditwheel show`, and every library has the functions that Python calls, as
lief reads its table of symbols. The wheel for a machine like this one is installed into an empty
environment, where a tiny model runs without a C compiler. The table at the end says which wheels
were run, and of which only the symbols were read.

The tools are the extra `wheels`; they go into an environment of their own, in build/wheels.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "build" / "wheels"

RUN_A_MODEL = """
import torch
from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.batching.native.library import load
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafCell

schema = Schema(types=(NodeType("word", arity=0),))
builder = GraphBuilder(schema)
builder.output(builder.node("word", []))
builder.finish()
dag = builder.build()
for dtype in (torch.float32, torch.float64):
    network = Network(schema, (Up(), {"word": LeafCell(4, 3)}), run="compiled").to(dtype)
    network(Batch(dag, build_schedule(dag, network.passes)), {"word": torch.ones(1, 4).to(dtype)})
    print(load(dtype)._name, *network.execution.values())
"""


def main() -> None:
    if Path(sys.prefix) != TOOLS:  # again with the tools; a model needs the libraries of this one
        install_tools()
        python = str(TOOLS / "bin" / "python")
        os.execv(python, [python, __file__, "--python", sys.executable, *sys.argv[1:]])
    sys.path.insert(0, str(ROOT))
    from hatch_build import native_build

    code = native_build(ROOT)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "targets", nargs="*", metavar="TAG", help=f"one of {', '.join(code.TARGETS)}"
    )
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where they go; emptied")
    parser.add_argument("--python", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(code.TARGETS)
    if unknown:
        parser.error(f"there is no target '{min(unknown)}'; there are {', '.join(code.TARGETS)}")
    dist = arguments.dist.resolve()
    shutil.rmtree(dist, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist)])
    rows = [("sdist", size_of(next(dist.glob("*.tar.gz"))), "", "")]
    for target in map(code.TARGETS.__getitem__, arguments.targets or code.TARGETS):
        print(f"wheels: {target.tag}", flush=True)
        wheel = make_wheel(target, dist)
        names = check_libraries(wheel, target, code)
        if target.system == "Linux":
            check_platform(wheel, target)
        if target.can_run_here:
            run_without_compiler(wheel, arguments.python)
        checked = "run here" if target.can_run_here else "symbols only"
        rows.append((target.tag, size_of(wheel), str(len(names)), checked))
    files = [str(path) for path in sorted(dist.iterdir())]
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    for row in (("target", "size", "libraries", "checked"), *rows):
        print("{:24}{:>10}{:>11}  {}".format(*row).rstrip())


def install_tools() -> None:
    """Installs the extra `wheels` into an environment of its own, if it is not there yet."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tools, pins = project["optional-dependencies"]["wheels"], ROOT / "constraints.txt"
    wanted = "\n".join([*tools, pins.read_text(encoding="utf-8")])
    installed = TOOLS / ".installed"
    if installed.is_file() and installed.read_text(encoding="utf-8") == wanted:
        return
    venv.create(TOOLS, clear=True, with_pip=True)
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-input"]
    run([*pip, "--disable-pip-version-check", "--constraint", str(pins), *tools])
    installed.write_text(wanted, encoding="utf-8")


def make_wheel(target: Any, dist: Path) -> Path:
    """The wheel for a kind of machine."""
    cache = str(TOOLS / "zig")  # of the C libraries that zig compiles
    environment = {
        "GRAPHFOLD_TARGET": target.tag,
        "CC": shlex.join([sys.executable, "-m", "ziglang", "cc"]),
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    run(command, environment)
    return next(dist.glob(f"*-py3-none-{target.tag}.whl"))


def check_libraries(wheel: Path, target: Any, code: Any) -> list[str]:
    """The libraries of a wheel, which have to have the names and functions that Python asks for."""
    expected = {
        code.library_name(real, i, target) for real in code.REALS for i in target.instruction_sets
    }
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        paths = [name for name in archive.namelist() if name.endswith(".so")]
        names = {path.rpartition("/")[2] for path in paths}
        if names != expected:
            fail(f"{wheel.name} has {sorted(names)}, and Python asks for {sorted(expected)}")
        for path in paths:
            lacking = set(code.FUNCTIONS) - exported(Path(archive.extract(path, folder)))
            if lacking:
                fail(f"{wheel.name}: {path} lacks {', '.join(sorted(lacking))}")
    return sorted(names)


def exported(library: Path) -> set[str]:
    """The functions that a library for Linux, macOS or Windows offers."""
    import lief

    lief.logging.disable()  # it warns of what zig leaves out
    binary = lief.parse(library)
    if binary is None:
        fail(f"{library.name} is no library")
    names = {function.name for function in binary.exported_functions}
    return {name.removeprefix("_") for name in names} if lief.is_macho(str(library)) else names


def check_platform(wheel: Path, target: Any) -> None:
    """Ends the program unless auditwheel finds that a wheel runs where its tag says."""
    found = run([sys.executable, "-m", "auditwheel", "show", str(wheel)])
    newer = re.search(r"platform tag:\s+\"(\w+)\"", found)
    if newer is None or newer[1] not in (target.tag, target.tag.replace("2014", "_2_17")):
        fail(f"auditwheel says of {wheel.name}: {found}")


def run_without_compiler(wheel: Path, python: Path) -> None:
    """Runs a tiny model by an installed wheel, with the libraries that another Python has."""
    libraries = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    with tempfile.TemporaryDirectory() as folder:
        run([str(python), "-m", "venv", folder])
        own = [str(Path(folder, "bin", "python")), "-W", "error"]
        offline = ["--no-deps", "--no-index", "--disable-pip-version-check"]
        run([own[0], "-m", "pip", "install", "-qq", *offline, str(wheel)])
        where = run(
            [own[0], "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        ).strip()
        Path(where, "libraries.pth").write_text(libraries, encoding="utf-8")
        nothing = {"CC": "/nonexistent", "PATH": "/nonexistent", "XDG_CACHE_HOME": folder}
        printed = run([*own, "-c", RUN_A_MODEL], {**nothing, "PYTHONPATH": ""}, folder)
        for line in printed.splitlines():
            path, how = line.split(maxsplit=1)
            if how != "compiled (native)" or not Path(path).is_relative_to(where):
                fail(f"{wheel.name}: a model is {how}, by {path}")


def size_of(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None
) -> str:
    """What a command prints; if it fails, this program ends with it."""
    done = subprocess.run(
        command, cwd=folder or ROOT, env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        fail(f"{shlex.join(command)}\n{done.stdout}")
    return done.stdout


def fail(why: str) -> None:
    print(f"wheels: {why}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
