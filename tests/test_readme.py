"""What the documents show is so: Python blocks run, commands, files and experiments exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphfold.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    fence = rf"^```{language}\n(.*?)^```$"
    return re.findall(fence, path.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(path: Path) -> list[list[str]]:
    """The words of every command in the sh blocks, without comments."""
    lines = "".join(blocks(path, "sh")).replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in line.split("#")[0].split("&&")]
    return [words for part in parts if (words := part.split())]


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, flags=re.M))


def test_the_readme_shows_code_and_commands():
    assert blocks(ROOT / "README.md", "python")
    assert commands(ROOT / "README.md")


@pytest.mark.parametrize("block", blocks(ROOT / "README.md", "python"))
def test_readme_block_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})  # warnings are errors
    promised = re.findall(r"print\(.*\)\s*# (.*)", block)
    assert capsys.readouterr().out.splitlines() == promised


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_commands_exist(path):
    for program, *arguments in commands(path):
        if program == "graphfold":
            assert arguments[0] in COMMANDS, arguments
        elif program == "make":
            assert {word for word in arguments if "=" not in word} <= targets(), arguments
        elif "/" in program:
            assert (ROOT / program).exists() or program.startswith(".venv/"), program


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_groups_of_the_config_exist(path):
    # With a folder of one's own the names are one's own.
    lines = [line for line in commands(path) if "--config-dir" not in line]
    for word in (word for line in lines for word in line):
        group, _, name = word.partition("=")
        if (ROOT / "configs" / group).is_dir() and name.isidentifier() and not name.isupper():
            assert (ROOT / "configs" / group / f"{name}.yaml").is_file(), word
