"""References of functions, classes and modules of Python, and those that code may not have."""

from __future__ import annotations

import builtins
import datetime
import decimal
import dis
import importlib
import io
import os
import pathlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType

import numpy as np
import torch
from torch.utils import dlpack

from graphfold.batching.engine.watched.object_kinds import is_constant, is_constant_class
from graphfold.batching.engine.watched.parts import ABSENT, Parts

_BUILTINS = frozenset(vars(builtins))
#: Of functions, and of the bodies of classes within them.
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})


@dataclass(frozen=True)
class CodeNames:
    """The names in the code of a function, and of the functions within it.

    Attributes:
        loaded: names looked up among the globals of its module, then among Python's own.
        imported: modules that it imports when it runs.
        named: all of them, the names of attributes, and strings, which may be given to `getattr`.
        stored: globals of its module that it sets.
    """

    loaded: frozenset[str]
    imported: frozenset[str]
    named: frozenset[str]
    stored: frozenset[str]

    def builtins_of(self, function: FunctionType) -> frozenset[str]:
        """The names that a function loads as builtins, since no global hides them."""
        return (self.loaded & _BUILTINS).difference(function.__globals__)

    def modules_of(self, function: FunctionType) -> Iterator[tuple[str, ModuleType | None]]:
        """The modules that it imports, by name; None for one that is not imported yet."""
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
    loaded, imported, named, stored = set[str](), set[str](), set[str](), set[str]()
    stack = [code]
    while stack:
        code = stack.pop()
        steps = list(dis.get_instructions(code))
        loaded.update(step.argval for step in steps if step.opname in _LOADS)
        imported.update(step.argval for step in steps if step.opname == "IMPORT_NAME")
        stored.update(step.argval for step in steps if step.opname in _STORES)
        named.update(code.co_names, (const for const in code.co_consts if isinstance(const, str)))
        stack += [const for const in code.co_consts if isinstance(const, CodeType)]
    return CodeNames(*map(frozenset, (loaded, imported, named, stored)))


#: What gives other results from call to call, though nothing in the program changes.
_CHANGING: Mapping[str, Sequence[object]] = {
    "environment variables": (os.environ, os.environb, os.getenv, os.getenvb),
    "the clock": (datetime.datetime, datetime.date),
    "files": (io.open, torch.load, np.load, np.loadtxt, np.fromfile),
    "random numbers of the system": (os.urandom,),
    "the precision of decimal numbers": (decimal.Decimal, decimal.localcontext),
    "the memory of a tensor": (dlpack.to_dlpack,),  # type: ignore[attr-defined]
}
_CHANGING_MODULES = {
    "time": "the clock",
    "random": "random numbers of Python",
    "secrets": "random numbers of the system",
    "numpy.random": "random numbers of NumPy",
}
#: Methods of paths that look at files, and other names as well: a layer may be called `stat`.
_READS_FILES = frozenset(
    name for name in dir(pathlib.Path) if not (name.startswith("_") or hasattr(PurePath, name))
)
_CHANGING_BUILTINS = {
    "open": "files",
    "input": "the keyboard",
    "eval": "what eval() evaluates",
    "exec": "what exec() runs",
    "globals": "what globals() gives",
}
#: Modules of Python whose functions give the same for the same arguments.
_PURE = frozenset(
    {"builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools"}
    | {"collections", "_collections", "_collections_abc", "abc", "_abc", "types", "typing", "enum"}
    | {"dataclasses", "copy", "copyreg", "numbers", "fractions", "statistics", "string", "_string"}
    | {"re", "_sre", "textwrap", "contextlib", "bisect", "_bisect", "heapq", "_heapq", "array"}
    | {"struct", "_struct", "datetime", "weakref", "warnings", "_warnings", "logging", "inspect"}
)
#: Functions of these that tell what somebody has set.
_ASKS_LOGGING = frozenset({"getLogger", "getLevelName", "getHandlerNames"})
#: The same of NumPy and torch.
_ASKS_NUMPY = frozenset({"geterr", "geterrcall", "geterrobj", "getbufsize", "get_printoptions"})
_ASKS_TORCH = frozenset(
    {"initial_seed", "seed", "get_rng_state", "get_num_threads", "get_num_interop_threads"}
    | {"are_deterministic_algorithms_enabled", "get_deterministic_debug_mode"}
    | {"is_deterministic_algorithms_warn_only_enabled", "get_float32_matmul_precision"}
    | {"is_autocast_enabled", "is_autocast_cache_enabled", "get_autocast_dtype"}
    | {"get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "get_default_device"}
    | {"is_warn_always_enabled", "get_device_module"}
)
#: Modules of torch that tell of devices and other processes, or hold switches.
_ASKING_MODULES = ("torch.backends", "torch.cuda", "torch.distributed", "torch.mps", "torch.xpu")
_CODE = (FunctionType, BuiltinFunctionType, ModuleType, type)
#: Who uses these may ask for attributes by names that appear nowhere.
_ASKS_FOR_ANY = frozenset({"getattr", "vars", "dir", "__dict__", "attrgetter", "methodcaller"})
#: Methods that run for objects that already exist only if code names them.
_UNCALLED = frozenset({"__repr__", "__str__", "__del__", "__copy__", "__deepcopy__", "__reduce__"})
_UNCALLED |= {"__reduce_ex__", "__getstate__", "__setstate__", "__init_subclass__"}
_MAKING = frozenset({"__init__", "__new__", "__post_init__"})
#: Entries of classes that no code of a cell reads.
_NOTES = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__slots__"})
_NOTES |= {
    "__slotnames__",
    "__annotations__",
    "__annotate__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "_abc_impl",
}


def why_changing(value: object) -> str | None:
    """The name of a thing that changes unseen, if a cell uses the value."""
    if isinstance(value, (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
        return "code in TorchScript, which may depend on how many nodes there are,"
    if issubclass(type(value), ModuleType):
        name = str(value.__name__)  # type: ignore[attr-defined]
        if name.startswith("torch.backends."):
            return "switches of torch"
        return _CHANGING_MODULES.get(name)
    if type(value) is BuiltinFunctionType and value.__module__ == "time":
        return "the clock"
    if isinstance(value, decimal.Decimal):
        return "the precision of decimal numbers"
    found = (what for what, all_such in _CHANGING.items() if any(value is one for one in all_such))
    return next(found, None) or _why_asking(value)


def _why_asking(value: object) -> str | None:
    """The name of a function of a library that tells of the process, the machine or a setting."""
    if type(value) not in (FunctionType, BuiltinFunctionType):
        return None
    name, module = str(value.__name__), str(value.__module__ or "")  # type: ignore[attr-defined]
    library = module.partition(".")[0]
    if library == "torch" or (not module and getattr(torch, name, None) is value):
        asks = name in _ASKS_TORCH or module.startswith(_ASKING_MODULES)
    elif library == "numpy":
        asks = name in _ASKS_NUMPY
    elif library in sys.stdlib_module_names:
        asks = library not in _PURE or name in _ASKS_LOGGING
    else:
        return None
    if not asks:
        return None
    return "files" if name in _READS_FILES else f"what {module or 'torch'}.{name}() tells"


def has_path(value: object) -> bool:
    """True for a path, for a class of paths, and for a tuple with one of them in it."""
    stack = [value]
    while stack:
        value = stack.pop()
        if type(value) is tuple:
            stack += value
        elif issubclass(value if isinstance(value, type) else type(value), PurePath):
            return True
    return False


def reads_files(names: Collection[str]) -> bool:
    """True if some names are methods of `Path` that read the file system."""
    return not _READS_FILES.isdisjoint(names)


def why_changing_names(names: CodeNames, function: FunctionType) -> str | None:
    """Why a function reads what cannot be watched, from the names in its code."""
    own = names.builtins_of(function)
    return next((what for name, what in _CHANGING_BUILTINS.items() if name in own), None)


def is_constant_function(function: FunctionType) -> bool:
    """True if a constant module defines it; it may still call what it closes over."""
    return is_constant(function.__globals__.get("__name__"))


def closure_of(function: FunctionType) -> Parts:
    """The variables that a function closes over."""
    names = function.__code__.co_freevars
    # What `super()` closes over is the class of an object that is known already.
    order = sorted(range(len(names)), key=lambda n: names[n] != "__class__")

    def read(now: FunctionType) -> list[object]:
        cells = now.__closure__ or ()
        return [_content(cells[number]) for number in order]

    follow = [names[number] for number in order if names[number] != "__class__"]
    return Parts(read, [f"'s variable {name}" for name in follow])


def parts_of_function(function: FunctionType, names: CodeNames) -> Parts:
    """The things that a function reads outside of itself, apart from its closure."""
    loaded = sorted(name for name in names.loaded if name in function.__globals__)
    hidden = names.loaded.difference(loaded)  # Python's own, until a global gets such a name

    def read(now: FunctionType) -> list[object]:
        known, own = now.__globals__, now.__dict__
        return [
            now.__code__,
            known.keys().isdisjoint(hidden),
            *own,
            now.__defaults__,
            now.__kwdefaults__,
            *[known[name] for name in loaded],
            *own.values(),
        ]

    follow = ["'s defaults", "'s defaults", *(f"'s global {name}" for name in loaded)]
    return Parts(read, [*follow, *(f".{name}" for name in function.__dict__)])


#: The entries of a class, none of which is followed yet.
CLASS_PARTS = Parts(lambda now: [now.__mro__, *(own := _entries(now)), *own.values()], [])


def _entries(kind: type) -> dict[str, object]:
    own = dict(vars(kind))
    own.pop("__slotnames__", None)  # which copy.deepcopy notes in a class
    return own


def entries_to_follow(kind: type, names: Collection[str], is_made: bool) -> list[str]:
    """The names of the entries of a class that run or are read.

    Args:
        kind: the class.
        names: those that code uses.
        is_made: whether code may make objects of it.
    """
    bases = [base for base in kind.__mro__[1:] if is_constant_class(base)]
    inherited = {name for base in bases for name in vars(base)}
    wants_any = not _ASKS_FOR_ANY.isdisjoint(names)

    def is_used(name: str) -> bool:
        if name in names or name in _NOTES:
            return name not in _NOTES
        if name in _MAKING:
            return is_made
        # Python and the code of libraries call what their own classes have, too.
        return name not in _UNCALLED and (wants_any or name in inherited or _is_special(name))

    return [name for name in vars(kind) if is_used(name)]


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def has(module: ModuleType, name: str) -> bool:
    """True if a module of Python has an attribute, or would load it and code may not have it."""
    place = f"{module.__name__}.{name}"
    if place in _CHANGING_MODULES:  # NumPy loads numpy.random when somebody asks for it
        importlib.import_module(place)
    return name in vars(module)


def parts_of_module(module: ModuleType, names: Iterable[str]) -> Parts:
    """Some attributes of a module of Python; of a constant one, only code is followed."""
    own, takes_all = vars(module), not is_constant(module.__name__)
    named = [name for name in names if name in own]
    can_change = (*_CODE, list, dict, set)  # lists of settings, such as `warnings.filters`
    is_code = {n: isinstance(own[n], can_change) or why_changing(own[n]) for n in named}
    follow = [name for name in named if takes_all or is_code[name]]
    order = [name for name in named if name not in follow] + follow
    return Parts(
        lambda now: list(map(vars(now).__getitem__, order)), [f".{name}" for name in follow]
    )


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return ABSENT
