"""Python source: functions whose identifiers are masked, and the variable that belongs there.

Functions are cut out of files and read into syntax trees; each identifier has its words and the
role of its variable: how it gets its values.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import re
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.text_files import at_least_one, open_bytes
from graphfold.errors import ConfigError, LeftOut, RecordError

_RUNS = re.compile(r"[^\W\d_]+|\d+")

#: Where a word begins inside a run of letters: the L of readLine, the S of HTTPServer.
_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def choose_name(names: Collection[str], key: str) -> str | None:
    """One of some names, always the same for the same key; None of none."""
    return min(names, key=lambda n: hashlib.sha256(f"{key} {n}".encode()).digest(), default=None)


def identifiers(node: ast.AST) -> Iterator[str]:
    """The identifiers that stand at a node itself, in order; those in `a.b` one by one."""
    if isinstance(node, ast.Constant):
        return
    for name, value in ast.iter_fields(node):
        if name == "type_comment":
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield from item.split(".")


def split_name(name: str) -> list[str]:
    """The words of an identifier in lower case: `readLine_2` is read, line, 2."""
    runs: list[str] = _RUNS.findall(name)
    return [part.lower() for run in runs for part in _BREAKS.split(run)] or [name]


#: The roles; the code of one is its position here.
ROLES = ("fixed", "changed", "gathered", "loop", "resource", "recent")

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
_STEPS = (ast.For, ast.AsyncFor, ast.comprehension)


class _Place(NamedTuple):
    """The surroundings of a node: how names under it get their values, and what these are."""

    binder: str = "assigned"
    reads: frozenset[str] = frozenset()  # the names in the new value
    in_loop: bool = False


@dataclass
class _Facts:
    """The ways in which a name gets its values."""

    is_parameter: bool = False
    is_gathered: bool = False
    is_recent: bool = False
    is_loop: bool = False
    is_resource: bool = False
    assigned: int = 0


def find_roles(function: ast.AST) -> dict[str, str | None]:
    """Name -> role, of all variables; None for parameters. Not `self` and `cls`; no recursion.

    After the roles of variables of Sajaniemi (2002), https://doi.org/10.1109/HCC.2002.1046340,
    told by fixed rules, of which the first that holds decides:

    - gathered: in a loop it gets a value that is made of its old one;
    - loop: it takes the values that a loop or a comprehension goes through;
    - resource: what `with` or `except` gives it;
    - recent: it is assigned to in a loop, so it holds the latest of several values;
    - changed, fixed: it is assigned to in several places, or in one.

    Names of functions inside it are taken together with its own.
    """
    facts: dict[str, _Facts] = defaultdict(_Facts)
    stack: list[tuple[ast.AST, _Place]] = [(function, _Place())]
    while stack:
        node, place = stack.pop()
        if isinstance(node, ast.arg):
            facts[node.arg].is_parameter = True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            _bind(facts[node.id], node.id, place)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            facts[node.name].is_resource = True
        stack += _below(node, place)
    return {name: _role(found) for name, found in facts.items() if name not in ("self", "cls")}


def _below(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """The nodes below a node with their surroundings."""
    in_loop = place.in_loop or isinstance(node, _LOOPS)
    inside = _Place(in_loop=in_loop)
    for name, value in ast.iter_fields(node):
        own = place._replace(in_loop=in_loop) if isinstance(node, ast.expr) else inside
        if name in ("target", "targets"):
            own = inside._replace(binder="loop") if isinstance(node, _STEPS) else own
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                own = inside._replace(reads=_reads(node))
        elif name == "optional_vars":
            own = inside._replace(binder="resource")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield item, own


def _reads(node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) -> frozenset[str]:
    """The names that the new value is made of."""
    sources = [node.value] if node.value is not None else []
    sources += [node.target] if isinstance(node, ast.AugAssign) else []
    below = (part for source in sources for part in ast.walk(source))
    return frozenset(part.id for part in below if isinstance(part, ast.Name))


def _bind(facts: _Facts, name: str, place: _Place) -> None:
    facts.is_loop |= place.binder == "loop"
    facts.is_resource |= place.binder == "resource"
    facts.is_gathered |= place.in_loop and name in place.reads
    facts.is_recent |= place.in_loop
    facts.assigned += place.binder == "assigned"


def _role(facts: _Facts) -> str | None:
    if facts.is_parameter:
        return None
    if facts.is_gathered:
        return "gathered"
    if facts.is_loop:
        return "loop"
    if facts.is_resource:
        return "resource"
    if facts.is_recent:
        return "recent"
    return "changed" if facts.assigned > 1 else "fixed"


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


#: What stands in the place of an identifier that is asked about; no identifier of Python.
MASK = "?"

#: Nodes that only say what the node above them does; Python keeps one of each for all places.
_MARKS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


def write_function(
    tree: ast.AST, masked: Mapping[str, Mapping[str, Any]], graph: GraphBuilder
) -> None:
    """Adds all nodes, each after its inputs; the masked identifiers are the first.

    Args:
        tree: the syntax tree.
        masked: the identifiers to be masked, each with its targets.
        graph: where to.
    """
    names = _Identifiers(masked, graph)
    numbers: dict[int, int] = {}
    for node, field in _postorder(tree):
        inputs = [names.number(name) for name in identifiers(node)]
        inputs += [numbers.pop(id(child)) for child, _ in _children(node)]
        numbers[id(node)] = graph.node("syntax", inputs, kind=_kind(node), field=field)


class _Identifiers:
    """The nodes of the identifiers and words of one function, made when they first come up."""

    def __init__(self, masked: Mapping[str, Mapping[str, Any]], graph: GraphBuilder) -> None:
        self._graph = graph
        self._words: dict[str, int] = {}
        self._numbers = {
            name: graph.node("identifier", form=MASK, **targets) for name, targets in masked.items()
        }

    def number(self, name: str) -> int:
        """The node of an identifier."""
        if name not in self._numbers:
            words = [self._word(word) for word in split_name(name)]
            self._numbers[name] = self._graph.node("identifier", words, form=name)
        return self._numbers[name]

    def _word(self, word: str) -> int:
        if word not in self._words:
            self._words[word] = self._graph.node("word", form=word)
        return self._words[word]


def _postorder(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """All nodes, those below before those above, each with its field; without recursion."""
    found: list[tuple[ast.AST, str]] = []
    stack = [(tree, "")]
    while stack:
        node, field = stack.pop()
        found.append((node, field))
        stack += _children(node)
    return found[::-1]


def _children(node: ast.AST) -> list[tuple[ast.AST, str]]:
    """The nodes below a node in order, each with its field."""
    return [
        (item, name)
        for name, value in ast.iter_fields(node)
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, ast.AST) and not isinstance(item, _MARKS)
    ]


def _kind(node: ast.AST) -> str:
    """The class of a node with its marks, such as BinOp.Add, or with the type of a constant."""
    kind = type(node).__name__
    if isinstance(node, ast.Constant):
        return f"{kind}.{type(node.value).__name__}"
    marks = (type(c).__name__ for c in ast.iter_child_nodes(node) if isinstance(c, _MARKS))
    return ".".join((kind, *marks))


_CODES: Mapping[str | None, int] = {role: code for code, role in enumerate(ROLES)}


class PythonAdapter(Adapter):
    """Reads functions and methods out of Python files, one record each, with the module `ast`.

    The identifiers that are asked about are masked wherever they stand in the function, also as an
    attribute or a keyword. With `target="role"` these are all its parameters and variables, and
    what it does with each is to be found: its place in `ROLES`, see `find_roles`. With
    `target="name"` it is one of them, and what it is called is to be found, as in Allamanis et al.
    (2018), https://arxiv.org/abs/1711.00740, section 5: one that is among `names`; which one, a
    hash decides. A function without such identifiers is left out.

    Schema: the type `syntax` (a node of the syntax tree: the strings `kind`, such as Name.Store,
    and `field`, the field of its parent; its inputs are the identifiers that stand there and then
    the nodes below it, in order), the type `identifier` (the string `form`; its inputs are its
    words), which all places share where it stands in the function, and the type `word` (the
    string `form`). Comments and the content of strings are left out. Node target: `role`; or graph
    target: `name`, a position in `names`. Graph features: `function`, `source_file` and `text`,
    the source. The outputs are the masked identifiers, in alphabetical order. A file that is no
    Python is one bad record.

    Args:
        target: role or name.
        num_names: how many names are classes: the most frequent ones in the files.
        names: the classes, in the order of their codes, if they are known.

    Raises:
        ConfigError: if an option cannot be used.
    """

    def __init__(
        self,
        target: Literal["role", "name"] = "role",
        num_names: int = 50,
        names: Sequence[str] | None = None,
    ) -> None:
        if target not in ("role", "name"):
            raise ConfigError(f"target is '{target}'. Use role or name.")
        if num_names < 2:
            raise ConfigError(f"num_names is {num_names}. Give two or more.")
        self.target = target
        self.num_names = num_names
        self.is_open = target == "name" and names is None
        self.names = tuple(names or ())
        self.needs_target = True
        column = Column(target, "int64", names=ROLES if target == "role" else self.names)
        form = (Column("form", "string"),)
        self.schema = Schema(
            types=(
                NodeType("word", 0, form),
                NodeType("identifier", None, form, ("word",)),
                NodeType("syntax", None, (Column("kind", "string"), Column("field", "string"))),
            ),
            node_targets=(column,) if target == "role" else (),
            graph_features=tuple(
                Column(name, "string") for name in ("function", "source_file", "text")
            ),
            graph_targets=(column,) if target == "name" else (),
        )

    def sources(self, path: Path) -> list[Path]:
        """The file itself, or all `.py` files in a folder and the folders in it."""
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.rglob("*.py") if file.is_file())

    def records(self, path: Path) -> Iterator[Record]:
        """One record per function, `content` being a `Function`; see `Adapter.records`."""
        found = (record for file in self.sources(path) for record in cut_functions(file))
        yield from at_least_one(found, path, "functions")

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The classes: the names that most functions give; see `Adapter.infer_options`."""
        if not self.is_open:
            return {}
        records = (record for path in paths for record in self.records(path))
        good = (record.content for record in records if record.fault is None)
        counts = Counter(name for function in good for name in _given(function))
        if len(counts) < 2:
            raise ConfigError("the functions give fewer than two names. Give more files.")
        ranked = sorted(counts, key=lambda name: (-counts[name], name))
        return {"names": ranked[: self.num_names]}

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one function; see `Adapter.parse`."""
        function: Function = record.content
        tree = parse_function(function)
        roles = find_roles(tree)
        columns: dict[str, Any] = {}
        masked = sorted(roles)
        if self.target == "name":
            name = self._choose(masked, function.name)
            masked = [] if name is None else [name]
            columns["name"] = self.names.index(name) if name in self.names else None
        elif self.needs_target and not any(roles.values()):
            raise LeftOut("the function has no variables besides its parameters")
        if not masked:
            fault = "the function has no parameters or variables that are asked about"
            raise LeftOut(fault) if self.needs_target else RecordError(fault)
        codes = {name: {"role": _CODES.get(roles[name])} for name in masked}
        write_function(tree, codes if self.target == "role" else {masked[0]: {}}, graph)
        graph.output(*range(len(masked)))
        columns |= {"function": function.name, "source_file": function.file, "text": function.text}
        graph.finish(line=record.line, columns=columns)

    def _choose(self, names: Sequence[str], key: str) -> str | None:
        """The name to be found; a known one, in prediction also another."""
        known = [name for name in names if name in self.names]
        return choose_name(known if self.needs_target else known or names, key)

    def without_targets(self) -> PythonAdapter:
        """For prediction: functions without a name of a class are not left out."""
        adapter = copy.copy(self)
        adapter.needs_target = False
        return adapter


def _given(function: Function) -> set[str]:
    """The names that a function gives; none if it cannot be parsed, which `parse` reports."""
    try:
        return {*find_roles(parse_function(function))}
    except RecordError:
        return set()
