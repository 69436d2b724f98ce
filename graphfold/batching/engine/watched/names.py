"""The names that the code of a function uses: what it may look up outside of itself."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from opcode import EXTENDED_ARG, opmap
from types import CodeType, FunctionType, ModuleType

_LOADS_GLOBAL = opmap["LOAD_GLOBAL"]
#: Since Python 3.11 the lowest bit of its argument says something else.
_SHIFT = 1 if sys.version_info >= (3, 11) else 0
#: Names that bodies of classes load.
_LOADS_NAME = frozenset(
    opmap[name] for name in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") if name in opmap
)
_IMPORTS = opmap["IMPORT_NAME"]


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

    @staticmethod
    def of(code: CodeType) -> CodeNames:
        """Those of a function's code."""
        loaded, imported, named = set[str](), set[str](), set[str]()
        stack = [code]
        while stack:
            code = stack.pop()
            named.update(code.co_names)
            for operation, number in _operations(code):
                if operation == _LOADS_GLOBAL:
                    loaded.add(code.co_names[number >> _SHIFT])
                elif operation in _LOADS_NAME:
                    loaded.add(code.co_names[number])
                elif operation == _IMPORTS:
                    imported.add(code.co_names[number])
            named.update(const for const in code.co_consts if isinstance(const, str))
            stack += [const for const in code.co_consts if isinstance(const, CodeType)]
        return CodeNames(frozenset(loaded), frozenset(imported), frozenset(named))

    def builtins_of(self, function: FunctionType) -> frozenset[str]:
        """Those among the loaded that no global of the function's module hides at present."""
        return frozenset(
            name for name in self.loaded if name not in function.__globals__ and name in _BUILTINS
        )

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


_BUILTINS = frozenset(vars(builtins))


def _operations(code: CodeType) -> Iterator[tuple[int, int]]:
    """The operations with their arguments; `dis` tells more, at ten times the time."""
    raw, extended = code.co_code, 0
    for operation, low in zip(raw[::2], raw[1::2], strict=True):
        if operation == EXTENDED_ARG:
            extended = (extended | low) << 8
        else:
            yield operation, extended | low
            extended = 0
