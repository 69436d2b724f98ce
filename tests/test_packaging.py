"""The project files: one version, pins for all, and a wheel that works on its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from load_script import load_script
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphfold.batching.native import build
from graphfold.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(python: str) -> dict[str, str]:
    """Library -> version, as constraints.txt has them for one Python."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    kept = [
        r for r in requirements if not r.marker or r.marker.evaluate({"python_version": python})
    ]
    names = [canonicalize_name(r.name) for r in kept]
    assert len(names) == len(set(names)), f"a library is pinned twice for Python {python}"
    return {name: next(iter(r.specifier)).version for name, r in zip(names, kept, strict=True)}


def test_version_has_one_source_and_six_lines(project, capsys):
    import graphfold

    assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["graphfold", "python", "torch", "processor", "native", "GPU"]
    assert [line.split()[0].rstrip(":") for line in lines] == names
    assert lines[0] == f"graphfold {project['version']}"
    assert torch.__version__ in lines[2]
    assert graphfold.__version__ == metadata.version("graphfold") == project["version"]


def test_changelog_has_the_version(project):
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == project["version"]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_within_its_range(project, python):
    pinned = pins(python)
    asked = [*project["dependencies"]]
    asked += [line for lines in project["optional-dependencies"].values() for line in lines]
    for requirement in map(Requirement, asked):
        if requirement.name != "graphfold":
            name = canonicalize_name(requirement.name)
            assert name in pinned, f"{name} has no pin for Python {python}"
            assert pinned[name] in requirement.specifier


def test_supported_pythons_are_named_everywhere(project):
    named = [line.split(" :: ")[-1] for line in project["classifiers"] if "Python :: 3." in line]
    assert tuple(named) == PYTHONS
    assert project["requires-python"] == ">=3.10,<3.14"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where no checkout is near."""
    folder = tmp_path_factory.mktemp("wheel")
    build_wheel(folder, **quick_compiler(folder / "cc"))
    with zipfile.ZipFile(next(folder.glob("graphfold-*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def quick_compiler(path: Path) -> dict[str, str]:
    """The environment for the C compiler without optimisation, which takes most of the time."""
    command = build.compiler()
    if command is None:
        return {}
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@" -O0\n')
    path.chmod(0o755)
    return {"CC": str(path)}


def build_wheel(folder: Path, **environment: str) -> str:
    """Builds the wheel in a folder; returns what is printed."""
    done = run_pip_wheel(folder, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def run_pip_wheel(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-v"]
    return subprocess.run(
        [*command, "-w", folder, ROOT],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def libraries(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in names if name.endswith(".so")}


@pytest.mark.slow
def test_wheel_holds_everything_and_nothing_else(wheel):
    top = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"graphfold"}
    sources = {"graphfold": ROOT / "graphfold", "graphfold/configs": ROOT / "configs"}
    for inside, source in sources.items():
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert (wheel / inside / path.relative_to(source)).is_file(), path
    assert (wheel / "graphfold" / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["train", "experiment=chembl_gcn", "--cfg", "job"], ["list"]],
    ids=" ".join,
)
def test_wheel_works_outside_the_checkout(wheel, tmp_path, command):
    # The unpacked wheel comes before the editable install on the path.
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    python = [sys.executable, "-W", "error"]
    where = subprocess.run(
        [*python, "-c", "import graphfold; print(graphfold.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(wheel)
    done = subprocess.run(
        [*python, "-m", "graphfold", *command],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


HERE = build.this_machine().instruction_sets
NO_COMPILER = {"CC": "/nonexistent", "PATH": "/nonexistent"}
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler")


@pytest.mark.slow
@needs_compiler
def test_wheel_has_libraries_for_this_kind_of_machine(wheel):
    native = wheel / "graphfold" / "batching" / "native"
    expected = {build.library_name(r, i) for r in build.REALS for i in HERE}
    assert libraries(path.name for path in native.iterdir()) == expected
    assert all(build.is_whole(native / name) for name in expected)
    (path,) = wheel.parent.glob("*.whl")
    python, abi, machine = path.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert machine == sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tags = next(wheel.glob("*.dist-info/WHEEL")).read_text()
    assert "Root-Is-Purelib: false" in tags


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(
    not {"AVX2", "AVX512"} & {torch.backends.cpu.get_cpu_capability()} and len(HERE) > 1,
    reason="wheels have libraries for AVX2 and AVX-512",
)
def test_an_installed_wheel_needs_no_compiler(wheel, tmp_path, monkeypatch):
    script = load_script("wheels", monkeypatch)
    environment = {**os.environ, **NO_COMPILER, "PYTHONPATH": str(wheel)}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script.RUN_A_MODEL],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert [how for _, how in lines] == ["compiled (native)"] * 2
    assert all(Path(path).is_relative_to(wheel) for path, _ in lines)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_pure(tmp_path):
    printed = build_wheel(tmp_path, **NO_COMPILER)
    assert "native code of graphfold is left out: no C compiler was found" in printed
    assert "the wheel is pure Python: until a C compiler is there" in printed
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert not libraries(names)
    assert {f"graphfold/batching/native/{name}" for name in build.SOURCES} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("win_arm64", "GRAPHFOLD_TARGET is 'win_arm64', and there are manylinux2014_x86_64, "),
        ("win_amd64", "there is no wheel for win_amd64: no C compiler was found"),
    ],
)
def test_a_wheel_that_was_asked_for_is_not_pure(tag, message, tmp_path):
    done = run_pip_wheel(tmp_path, **NO_COMPILER, GRAPHFOLD_TARGET=tag)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_wheel_for_another_system(tmp_path):
    if not (ROOT / "build" / "wheels" / ".installed").is_file():
        pytest.skip("there is no zig; `make wheels` installs it, into build/wheels")
    command = [sys.executable, "scripts/wheels.py", "--dist", tmp_path, "macosx_11_0_arm64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    row = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"macosx_11_0_arm64 +[\d.]+ MB +2  symbols only", row)
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-macosx_11_0_arm64.whl")
    with zipfile.ZipFile(path) as archive:
        made = {archive.read(name)[:4] for name in archive.namelist() if name.endswith(".so")}
    assert made == {b"\xcf\xfa\xed\xfe"}  # of Mach-O, 64 bits


@pytest.mark.slow
def test_an_editable_install_compiles_nothing(tmp_path):
    code = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    environment = {**os.environ, **NO_COMPILER}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "native" not in done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_sdist_has_what_a_wheel_is_made_of(tmp_path):
    code = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {f"graphfold/batching/native/{name}" for name in (*build.SOURCES, "build.py")}
    assert {"hatch_build.py", "pyproject.toml", *native} <= names
    assert not libraries(names)
