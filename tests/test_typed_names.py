"""Type checkers see the public names of modules that load them when first used, and no others."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "graphfold"

#: The modules that have a `__getattr__` of their own.
LAZY = [
    path
    for path in PACKAGE.rglob("__init__.py")
    if "def __getattr__" in path.read_text(encoding="utf-8")
]


def is_of_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize("path", LAZY, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_type_checkers_see_names_and_no_getattr(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "__getattr__"]
    nodes = [node for block in filter(is_of_type_checkers, tree.body) for node in ast.walk(block)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname for node in imports for alias in node.names}
    seen |= {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    assert seen == {*ast.literal_eval(assigned(tree, "__all__"))}


def assigned(tree: ast.Module, name: str) -> ast.expr:
    """The value of a name of a module."""
    nodes = [node for node in tree.body if isinstance(node, ast.Assign)]
    return next(node.value for node in nodes if ast.unparse(node.targets[0]) == name)


@pytest.mark.slow
def test_mypy_refuses_a_name_that_is_not_there(tmp_path):
    lines = ["import graphfold, graphfold.datasets, graphfold.training"]
    lines += ["graphfold.load", "graphfold.datasets.DataModule", "graphfold.training.Trainer"]
    wrong = ["graphfold.nonsense", "graphfold.datasets.nonsense", "graphfold.training.nonsense"]
    (tmp_path / "user.py").write_text("\n".join([*lines, *wrong]))
    flags = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, str(tmp_path / "user.py")],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.partition("user.py:")[2].partition(":")[0] for line in errors] == ["5", "6", "7"]
    assert all('has no attribute "nonsense"' in line for line in errors)
