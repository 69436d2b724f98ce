"""The names that the code of a function uses: what it may look up outside of itself."""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType

_BUILTINS = frozenset(vars(builtins))
#: Of functions, and of the bodies of classes within them.
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


@dataclass(frozen=True)
class CodeNames:
    """The names in the code of a function, and of the functions within it.

    Attributes:
        loaded: names looked up among the globals of its module, then among Python's own.
        imported: modules that it imports when it runs.
        named: all of them, the names of attributes, and strings, which may be given to `getattr`.
    """

    loaded: frozenset[str]
    imported: frozenset[str]
    named: frozenset[str]

    def builtins_of(self, function: FunctionType) -> frozenset[str]:
        """Those among the loaded that no global of the function's module hides at present."""
        return (self.loaded & _BUILTINS).difference(function.__globals__)

    def modules_of(self, function: FunctionType) -> Iterator[tuple[str, ModuleType | None]]:
        """The modules that it imports, by name; None for one that nobody has imported yet."""
        package = str(function.__globals__.get("__package__") or "")
        for name in self.imported:
            # A relative import tells of the package no more than a number, so all are tried.
            prefixes = [package.rsplit(".", up)[0] for up in range(package.count(".") + 1)]
            places = [name, *(f"{prefix}.{name}".strip(".") for prefix in prefixes)]
            found = [sys.modules[place] for place in places if place in sys.modules]
            yield from ((name, module) for module in found)
            if not found:
                yield name, None
            elif "." in name:  # `import a.b` makes `a` known
                yield name, sys.modules.get(name.partition(".")[0], found[0])


@lru_cache(maxsize=1024)
def names_of(code: CodeType) -> CodeNames:
    """The names in a function's code."""
    loaded, imported, named = set[str](), set[str](), set[str]()
    stack = [code]
    while stack:
        code = stack.pop()
        steps = list(dis.get_instructions(code))
        loaded.update(step.argval for step in steps if step.opname in _LOADS)
        imported.update(step.argval for step in steps if step.opname == "IMPORT_NAME")
        named.update(code.co_names, (const for const in code.co_consts if isinstance(const, str)))
        stack += [const for const in code.co_consts if isinstance(const, CodeType)]
    return CodeNames(frozenset(loaded), frozenset(imported), frozenset(named))
