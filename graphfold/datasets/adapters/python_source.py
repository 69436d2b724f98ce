"""Python source: functions whose identifiers are masked, and what is asked about them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.text_files import at_least_one
from graphfold.datasets.python_source.functions import Function, cut_functions, parse_function
from graphfold.datasets.python_source.identifiers import choose_name
from graphfold.datasets.python_source.roles import ROLES, find_roles
from graphfold.datasets.python_source.write_function import write_function
from graphfold.errors import ConfigError, LeftOut, RecordError

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
        self.class_names = {target: ROLES if target == "role" else self.names}
        column = Column(target, "int64", size=len(self.class_names[target]) or None)
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
