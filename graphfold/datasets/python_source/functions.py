"""Functions of Python source: cut out of files, and read into syntax trees."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from graphfold.datasets.adapter import Record
from graphfold.datasets.files.text_files import open_bytes
from graphfold.errors import RecordError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """The source of one function.

    Args:
        file: where it comes from.
        name: its name, after those of the classes that it stands in.
        text: its lines, indented as in the file.
    """

    file: str
    name: str
    text: str


def cut_functions(path: Path) -> Iterator[Record]:
    """The functions and methods of a file in order, `content` being a `Function`.

    One inside another belongs to it. A file that is no Python is one record, with the fault.
    """
    try:
        text = _read(path)
        module = parse_source(text)
    except RecordError as error:
        yield Record(error.line or 1, None, error.at(path, error.line or 1))
        return
    lines = io.StringIO(text, newline=None).readlines()
    for name, node in _functions(module):
        own = "".join(lines[node.lineno - 1 : node.end_lineno])
        yield Record(node.lineno, Function(str(path), name, own))


def parse_function(function: Function) -> FunctionNode:
    """The syntax tree of a function.

    Raises:
        RecordError: if it cannot be parsed.
    """
    is_indented = function.text[:1] in (" ", "\t")
    module = parse_source("if 1:\n" + function.text if is_indented else function.text)
    found = next(_functions(module), None)
    if found is None:
        raise RecordError("the source holds no function", "Give a def statement.")
    return found[1]


def parse_source(text: str) -> ast.Module:
    """The syntax tree of Python source.

    Raises:
        RecordError: if it is no Python of this version, or nested more deeply than Python reads.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings such as "\d"
            return ast.parse(text)
    except SyntaxError as error:
        raise RecordError(f"no Python: {error.msg}", line=error.lineno) from error
    except ValueError as error:  # null bytes
        raise RecordError(f"no Python: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise RecordError("the source is nested more deeply than Python can read") from error


def _read(path: Path) -> str:
    """The text of a file in the encoding that it declares, as Python itself reads it."""
    open_bytes(path).close()
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise RecordError(f"no text: {error}") from error


def _functions(module: ast.Module) -> Iterator[tuple[str, FunctionNode]]:
    """The functions that are in no other, with their names; in order and without recursion."""
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        prefix, node = stack.pop()
        if isinstance(node, FunctionNode):
            yield prefix + node.name, node
            continue
        inner = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
        below = [(inner, child) for child in ast.iter_child_nodes(node)]
        stack += [item for item in reversed(below) if not isinstance(item[1], ast.expr)]
