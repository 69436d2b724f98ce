"""Imports point one way, and the heavy libraries stay where they are needed."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import networkx as nx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(__file__).parents[1] / "graphfold"

#: The only parts that may import a library; a path stands for a file or a folder.
HOMES = {
    "rdkit": ("datasets/molecules", "datasets/readers/smiles.py", "datasets/corpora/chembl.py"),
    "lightning": (),
    "hydra": ("training", "search.py", "commands/train.py"),
    "omegaconf": ("training", "commands/train.py"),
    "torch_scatter": ("batching",),
    "torch_geometric": ("dag/pyg.py", "dag/hetero.py"),
}

#: What a command that prints its help has no time to import.
HEAVY = ("torch", "numpy", "lightning", "hydra", "omegaconf", "rdkit", "pyarrow", "matplotlib")

#: All but the package's own names, which come from any part, and only when asked for.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> list[str]:
    """Every module that a file imports, wherever in the file, type checking included."""
    return [*_imports(path)]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import. Name the module."
            module = node.module or ""
            if module == "graphfold":
                yield from (f"graphfold.{alias.name}" for alias in node.names)
            else:
                yield module


def file_graph(package: Path) -> nx.DiGraph[str]:
    """File -> file that it imports, wherever in the file, for type checkers included."""
    name_of = {
        path: ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for path, name in name_of.items()}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in files.items():
        for module, item in imported_names(ast.parse(path.read_text(encoding="utf-8"))):
            found = f"{module}.{item}" if f"{module}.{item}" in files else module
            # What a package's own files take from its __init__ is one of them.
            if found in files and not (name + ".").startswith(found + "."):
                graph.add_edge(name, found)
    return graph


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def circles(package: Path) -> list[list[str]]:
    """The sets of files that import each other."""
    found = nx.strongly_connected_components(file_graph(package))
    return sorted(sorted(files) for files in found if len(files) > 1)


def loaded(modules: Sequence[str], libraries: Collection[str]) -> str:
    """The first of the modules with which a fresh interpreter loads some of the libraries."""
    code = f"""import importlib, sys
for module in {[*modules]!r}:
    importlib.import_module(module)
    if found := sorted({{*sys.modules}} & {{*{[*libraries]!r}}}):
        sys.exit(f"{{module}} loads {{found}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr


def test_no_files_import_each_other():
    assert circles(PACKAGE) == []


@pytest.mark.parametrize("library", HOMES)
def test_library_is_imported_only_at_home(library):
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        if any(module.split(".")[0] == library for module in imports(path))
    }
    strangers = {user for user in users if not user.startswith(HOMES[library])}
    assert not strangers, f"{library} is imported in {sorted(strangers)}, not in {HOMES[library]}"


def test_help_imports_no_heavy_library():
    assert loaded(["graphfold", "graphfold.cli"], HEAVY) == ""


def test_models_need_neither_lightning_nor_rdkit():
    parts = ("errors", "dag", "batching", "datasets.adapter", "metrics", "layers")
    libraries = ("lightning", "torchmetrics", "matplotlib", "rdkit", "hydra")
    assert loaded([f"graphfold.{part}" for part in parts], libraries) == ""


def test_every_imported_library_is_a_declared_dependency():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name != "dev"]
    required = [*project["dependencies"], *(line for lines in extras for line in lines)]
    declared = {canonicalize_name(Requirement(line).name) for line in required}
    names = {module.split(".")[0] for path in FILES for module in imports(path)}
    providers = metadata.packages_distributions()
    for name in sorted(names - sys.stdlib_module_names - {"graphfold"}):
        distributions = {canonicalize_name(d) for d in providers.get(name, [name])}
        assert distributions & declared, f"pyproject.toml does not name what gives '{name}'"


def test_docstrings_begin_with_a_noun_or_a_verb():
    """Not with What or Whether; benchmarks begin with the question that they answer."""
    questions = ("What", "Whether", "Where", "How", "Which")
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    wrong = [
        f"{path.relative_to(PACKAGE)}: {text.splitlines()[0]}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
        if text.partition(" ")[0] in questions and not text.splitlines()[0].endswith("?")
    ]
    assert wrong == []
