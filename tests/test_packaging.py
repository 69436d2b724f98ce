"""The project files: one version, pins for all, and a wheel that works on its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_version_has_one_source(project: dict[str, Any]) -> None:
    import graphfold

    command = [sys.executable, "-m", "graphfold", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["graphfold", project["version"]]
    assert graphfold.__version__ == metadata.version("graphfold") == project["version"]


def test_changelog_has_the_version(project: dict[str, Any]) -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == project["version"]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_within_its_range(project: dict[str, Any], python: str) -> None:
    pinned = pins(python)
    asked = [*project["dependencies"]]
    asked += [line for lines in project["optional-dependencies"].values() for line in lines]
    for requirement in map(Requirement, asked):
        if requirement.name != "graphfold":
            name = canonicalize_name(requirement.name)
            assert name in pinned, f"{name} has no pin for Python {python}"
            assert pinned[name] in requirement.specifier


def test_supported_pythons_are_named_everywhere(project: dict[str, Any]) -> None:
    named = [line.split(" :: ")[-1] for line in project["classifiers"] if "Python :: 3." in line]
    assert tuple(named) == PYTHONS
    assert project["requires-python"] == ">=3.10,<3.14"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where no checkout is near."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-qq", "-w", folder, ROOT], check=True)
    with zipfile.ZipFile(next(folder.glob("graphfold-*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_wheel_holds_everything_and_nothing_else(wheel: Path) -> None:
    top = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"graphfold"}
    sources = {"graphfold": ROOT / "graphfold", "graphfold/configs": ROOT / "configs"}
    for inside, source in sources.items():
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert (wheel / inside / path.relative_to(source)).is_file(), path
    assert (wheel / "graphfold" / "py.typed").is_file()


@pytest.mark.parametrize(
    "command",
    [["train", "--cfg", "job"], ["train", "experiment=chembl_gcn", "--cfg", "job"], ["list"]],
    ids=" ".join,
)
def test_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path, command: list[str]) -> None:
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
