"""What code consists of: functions, classes and modules, for fingerprints.

Code that comes with Python or is installed is told by its name and version, graphfold's own by its
files, and anybody else's by what it consists of: byte code, constants, what it closes over and the
globals that it names, and so on. What code does to the outside (files, the time, random numbers
that the system draws) is not seen.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from graphfold.datasets.storage.fingerprint import file_hash

Parts: TypeAlias = tuple[str, Sequence[Any]]

#: What `functools.cache` and `functools.lru_cache` make.
CachedFunction = functools._lru_cache_wrapper

#: Functions with which code may do or read anything.
_DYNAMIC = {"eval", "exec", "compile", "globals", "locals", "vars", "__import__", "open", "input"}

#: The module that a user runs, whatever runs it.
_SCRIPTS = {"__main__", "__mp_main__"}

#: What a class has beside what its author wrote.
_BESIDE = {
    "__abstractmethods__",
    "__annotations__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__orig_bases__",
    "__parameters__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}


class Unreadable(Exception):
    """Something whose parts cannot be told."""


class Names(NamedTuple):
    """A module of which some attributes may be used."""

    module: ModuleType
    names: tuple[str, ...]


def name_of(value: Any) -> str:
    """The dotted name of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"


def function(value: FunctionType) -> Parts:
    """A function: its code, what it closes over, and the globals that it names."""
    closure = [_content(cell) for cell in value.__closure__ or ()]
    bound = [value.__defaults__, value.__kwdefaults__, closure]
    code, home = value.__code__, value.__globals__.get("__name__", "")
    version = version_of(home)
    if version is not None:
        return f"function of {home} {version}", [code, *bound]
    found = {name: _resolved(name, value) for name in global_names(code)}
    return "function", [code, *bound, vars(value), found, imported(code)]


def code(value: CodeType) -> Parts:
    """Byte code, with its constants."""
    tables = [value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars]
    counts = [value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags]
    errors = getattr(value, "co_exceptiontable", b"")  # new in Python 3.11
    return "code", [value.co_code, errors, value.co_consts, *tables, *counts]


def builtin(value: Any) -> Parts:
    """A function written in C, perhaps a method with the object that it belongs to."""
    whose = value.__self__
    if whose is None or isinstance(whose, ModuleType):
        return f"builtin {value.__module__} {value.__qualname__} {_required(value.__module__)}", ()
    return f"builtin {value.__qualname__}", [whose]


def descriptor(value: Any) -> Parts:
    """A method or an attribute of a class written in C, or a slot."""
    owner = value.__objclass__
    return f"descriptor {value.__name__} of {name_of(owner)} {version_of(owner.__module__)}", ()


def class_(value: type) -> Parts:
    """A class: its bases and all that it defines."""
    version = version_of(value.__module__)
    if version is not None:
        return f"class {name_of(value)} {version}", ()
    own = {name: part for name, part in vars(value).items() if name not in _BESIDE}
    return f"class {name_of(value)}", [type(value), value.__bases__, own]


def module(value: ModuleType, names: tuple[str, ...]) -> Parts:
    """A module: its file, and those of its attributes that may be used."""
    version = version_of(value.__name__)
    if version is not None:
        return f"module {value.__name__} {version}", ()
    file = getattr(value, "__file__", None)
    content = file_hash(Path(file)) if file else ""
    found = {name: _narrowed(vars(value)[name], names) for name in names if name in vars(value)}
    return f"module {value.__name__} {content}", [found]


def global_names(value: CodeType) -> list[str]:
    """The globals that code names, and the functions within it, each once."""
    found = (step for part in _with_nested(value) for step in dis.get_instructions(part))
    return list(dict.fromkeys(s.argval for s in found if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")))


def imported(value: CodeType) -> list[Names]:
    """The modules that code imports, and the functions within it."""
    found = []
    for part in _with_nested(value):
        steps = list(dis.get_instructions(part))
        for number, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                is_relative = steps[number - 2].argval != 0
                if is_relative or step.argval not in sys.modules:
                    raise Unreadable(f"it imports '{step.argval}'; import that before")
                found.append(Names(sys.modules[step.argval], attributes(value)))
    return found


def attributes(value: CodeType) -> tuple[str, ...]:
    """The names that code, and the functions within it, may ask an object for, each once."""
    return tuple(dict.fromkeys(name for part in _with_nested(value) for name in part.co_names))


def version_of(name: str) -> str | None:
    """The version of a module that comes with Python, with graphfold or is installed; else None.

    Raises:
        Unreadable: if it is installed without a version.
    """
    top = name.partition(".")[0]
    if top == "graphfold":
        return _own_version()
    return _version(top) if top in sys.modules and top not in _SCRIPTS else None


@functools.cache
def _version(top: str) -> str | None:
    file = getattr(sys.modules[top], "__file__", None)
    if file is None:
        return sys.version if top in sys.builtin_module_names else None
    folders = Path(file).resolve().parts
    if "site-packages" in folders or "dist-packages" in folders:
        return _installed_version(top)
    library = Path(sysconfig.get_paths()["stdlib"]).resolve()
    return sys.version if library in Path(file).resolve().parents else None


def _installed_version(top: str) -> str:
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        version = getattr(sys.modules[top], "__version__", None)
    if version is None:
        raise Unreadable(f"the package '{top}' does not say its version")
    return str(version)


@functools.cache
def _own_version() -> str:
    """The hash of graphfold's code."""
    folder = Path(__file__).parents[1]
    return " ".join(file_hash(file)[:16] for file in sorted(folder.rglob("*.py")))


def _required(name: str | None) -> str:
    version = version_of(name or "builtins")
    if version is None:
        raise Unreadable(f"it is compiled code of '{name}', whose version is not known")
    return version


def _with_nested(value: CodeType) -> Iterator[CodeType]:
    stack = [value]
    while stack:
        part = stack.pop()
        yield part
        stack.extend(constant for constant in part.co_consts if isinstance(constant, CodeType))


def _resolved(name: str, whose: FunctionType) -> Any:
    """What a name means to a function now."""
    known = whose.__globals__
    if name in known:
        return _narrowed(known[name], attributes(whose.__code__))
    if name in _DYNAMIC:
        raise Unreadable(f"'{name}' may do or read anything")
    if not hasattr(builtins, name):
        raise Unreadable(f"it names '{name}', which is not there")
    return getattr(builtins, name)


def _narrowed(value: Any, names: tuple[str, ...]) -> Any:
    return Names(value, names) if isinstance(value, ModuleType) else value


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError as error:
        raise Unreadable("it closes over something that is not there yet") from error
