"""The registry: parts of every kind by name.

A setting names parts of a kind: an adapter, a metric, a head. The parts of a kind are those of
graphfold, those that installed packages add by an entry point, and any at a dotted path, so each
kind is open to users. A registry gives the names and descriptions of `graphfold list`, the
suggestion for a misspelt name, and the package of a name: a stored run may name a part of another
package only if the user trusts that package.

A kind with a table of paths imports a part at its first use.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from graphfold.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Registry:
    """The parts of one kind.

    Args:
        kind: the noun for a part in messages, such as "adapter".
        usage: how a part is chosen, for `graphfold list`.
        paths: name -> "package.module:attribute" of graphfold's parts.
        home: a module of further parts of graphfold.
        spelling: the name of a part of `home`, from its name in Python.
        base: "package.module:Class", the base class of a part, or its class; None if a part is any
            function or class.
        is_instance: whether parts are instances of `base`, not classes derived from it.
        entry_point: the group of entry points by which another package adds parts.
        advice: how a user makes such a part.
    """

    kind: str
    usage: str
    paths: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None
    spelling: Callable[[str], str] = str
    base: str | None = None
    is_instance: bool = False
    entry_point: str | None = None
    advice: str = "Name another."

    def names(self) -> dict[str, str]:
        """Name -> path of every installed part, those of graphfold last."""
        theirs = {}
        if self.entry_point is not None:
            theirs = _installed(self.entry_point)
        return {**theirs, **self._at_home(), **self.paths}

    def find(self, name: str, setting: str | None = None) -> Any:
        """The part of a name or at a dotted path.

        Args:
            name: "rmse", or "my_package.my_module.my_metric", which is imported.
            setting: the setting that names it, for messages; the kind and the name by default.

        Raises:
            ConfigError: if the name, module or attribute does not exist, or is no such part.
        """
        names = self.names()
        if not isinstance(name, str):
            raise ConfigError(
                f"{setting or self.kind}={name!r} names no {self.kind}. Set {setting or 'it'} to "
                f"one of {', '.join(sorted(names))}, or to the dotted path of {self._a_part()}."
            )
        if name not in names and not is_path(name):
            listed = f"one of {', '.join(sorted(names))}, or " if names else ""
            raise ConfigError(
                f"there is no {self.kind} '{name}'.{did_you_mean(name, names)} Use {listed}the "
                f"dotted path of {self._a_part()}."
            )
        place = setting or f"{self.kind} '{name}'"
        part = import_part(names.get(name, name), place)
        if fault := self._fault(part, self._find_base()):
            raise ConfigError(f"{place}: {fault}")
        return part

    def parts(self) -> dict[str, Any]:
        """Name -> part, all of them imported."""
        return {name: import_part(path, self.kind) for name, path in self.names().items()}

    def package(self, name: str) -> str | None:
        """The package of a part outside of graphfold, see `foreign_package`."""
        return foreign_package(self.path(name))

    def path(self, name: str) -> str:
        """The path of a part, without importing it; an unknown name is returned unchanged."""
        return self.paths.get(name) or self.names().get(name, name)

    def summaries(self) -> dict[str, str]:
        """Name -> the first docstring line of a part of graphfold, the path of another."""
        return {
            name: path if self.package(name) else summary(import_part(path, self.kind))
            for name, path in self.names().items()
        }

    def _at_home(self) -> dict[str, str]:
        if self.home is None:
            return {}
        module = importlib.import_module(self.home)
        names = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        parts, base = {name: getattr(module, name) for name in names}, self._find_base()
        of_kind = [name for name, part in parts.items() if not self._fault(part, base)]
        return {self.spelling(name): f"{self.home}:{name}" for name in of_kind}

    def _find_base(self) -> Any:
        return None if self.base is None else import_part(self.base, self.kind)

    def _fault(self, part: Any, base: Any) -> str | None:
        """Sentences about why an object is no part of this kind; None for a part."""
        name = getattr(part, "__name__", type(part).__name__)
        if base is None:
            return None if callable(part) else f"a {name} is there. Name {self._a_part()}."
        if self.is_instance:
            fault = f"no {base.__name__} is there, but {name}. {self.advice}"
            return None if isinstance(part, base) else fault
        if not (isinstance(part, type) and issubclass(part, base)):
            return f"{name} does not derive from {base.__name__}. Name {self._a_part()}."
        if inspect.isabstract(part):
            absent = ", ".join(sorted(vars(part)["__abstractmethods__"]))
            return f"{name} lacks {absent}. Write them, or name a class that has them."
        return None

    def _a_part(self) -> str:
        """A noun for a user's part, for messages."""
        if self.base is None:
            return "a function"
        name = self.base.rpartition(":")[2]
        return f"a {name}" if self.is_instance else f"a class that derives from {name}"


def _installed(group: str) -> dict[str, str]:
    """Name -> path of the entry points of a group."""
    return dict(_entry_points(group, tuple(sys.path)))


@lru_cache(maxsize=16)
def _entry_points(group: str, places: tuple[str, ...]) -> dict[str, str]:
    """Reads the metadata of all installed packages, in 20 ms: once for each search path."""
    return {point.name: point.value for point in entry_points(group=group)}


#: Characters of a path that a plain name lacks.
_MARKS = re.compile(r"[.:/\\]")


def is_path(name: str) -> bool:
    """True for a path, such as "package.module.name" or "package:name"; False for a plain name."""
    return _MARKS.search(name) is not None


def package_of(path: str) -> str:
    """The first package of a path; a path without one is returned unchanged."""
    return _MARKS.split(path, maxsplit=1)[0] or path


def foreign_package(name: str) -> str | None:
    """The package of a path outside of graphfold, without importing it; else None.

    The names that a stored run may have depend on this function, see
    `graphfold.training.config.trust`.
    """
    package = package_of(name)
    return package if is_path(name) and package != "graphfold" else None


def import_part(path: str, place: str) -> Any:
    """The attribute of a module at "package.module.name", or "package.module:name".

    Args:
        path: the dotted path.
        place: the setting that names it, for messages.

    Raises:
        ConfigError: as `import_home` does, and if the module has no such attribute.
    """
    module, name = import_home(path, place)
    if not hasattr(module, name):
        public = [key for key in dir(module) if not key.startswith("_")]
        raise ConfigError(
            f"{place}: {module.__name__} has no '{name}'.{did_you_mean(name, public)} "
            "Correct the path."
        )
    return getattr(module, name)


def import_home(path: str, place: str) -> tuple[ModuleType, str]:
    """The module of a dotted path, imported, and the name of the attribute.

    Args:
        path: the dotted path.
        place: the setting that names it, for messages.

    Raises:
        ConfigError: if it is no dotted path, or the module or a module that it imports is missing.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f"{place}: '{path}' is no dotted path. Give one as package.module.name.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            remedy = "Correct the path, or install the package that holds it."
        else:
            remedy = f"Install '{missing}', which it imports."
        raise ConfigError(f"{place}: there is no module '{missing}'. {remedy}") from error
    except ImportError as error:
        raise ConfigError(f"{place}: cannot import '{module_name}' ({error}).") from error
    return module, name


def summary(part: object) -> str:
    """The description of a part, or the first line of its docstring."""
    text = getattr(part, "description", None)
    if not isinstance(text, str):
        text = part.__doc__ or ""
    return text.strip().partition("\n")[0]


_LAYERS = "graphfold.layers"

ADAPTERS = Registry(
    "adapter",
    "data.adapter=NAME, graphfold check-adapter NAME",
    {
        "brackets": "graphfold.datasets.readers.brackets:BracketsAdapter",
        "conllu": "graphfold.datasets.readers.conllu:ConlluAdapter",
        "graphs": "graphfold.datasets.readers.graphs:GraphsAdapter",
        "listops": "graphfold.datasets.readers.listops:ListOpsAdapter",
        "pairs": "graphfold.datasets.readers.pairs:PairsAdapter",
        "smiles": "graphfold.datasets.readers.smiles:SmilesAdapter",
        "table": "graphfold.datasets.readers.table_records:TableAdapter",
    },
    base="graphfold.datasets.adapter:Adapter",
    entry_point="graphfold.adapters",
)

#: By the suffix of the files that they read.
TABLES = Registry(
    "reader of tables",
    "a file name that ends in NAME",
    {
        ".csv": "graphfold.datasets.files.tables:open_csv",
        ".tsv": "graphfold.datasets.files.tables:open_tsv",
        ".smi": "graphfold.datasets.files.tables:open_smi",
        ".parquet": "graphfold.datasets.files.tables:open_parquet",
        ".sdf": "graphfold.datasets.molecules.sdf:open_sdf",
        ".mol": "graphfold.datasets.molecules.sdf:open_sdf",
    },
    entry_point="graphfold.readers",
)

_POLICIES = "graphfold.batching.scheduling.policies"

POLICIES = Registry(
    "scheduling policy",
    "data.policy=NAME",
    {
        "depth": f"{_POLICIES}:by_depth",
        "agenda": f"{_POLICIES}:by_agenda",
        "critical_path": f"{_POLICIES}:by_critical_path",
        "one_by_one": f"{_POLICIES}:one_by_one",
    },
)

#: The constant CHEMPROP_V2 is "chemprop-v2" in a config.
FEATURE_SETS = Registry(
    "feature set",
    "data.features=NAME",
    home="graphfold.datasets.molecules.feature_sets",
    spelling=lambda constant: constant.lower().replace("_", "-"),
    base="graphfold.datasets.molecules.atom_features:FeatureSet",
    is_instance=True,
)

HEADS = Registry(
    "head", f"model.head._target_={_LAYERS}.NAME", home=_LAYERS, base=f"{_LAYERS}:Head"
)
READOUTS = Registry(
    "readout", f"model.readout._target_={_LAYERS}.NAME", home=_LAYERS, base=f"{_LAYERS}:Readout"
)
CELLS = Registry(
    "cell",
    f"_target_: {_LAYERS}.NAME in model.cells",
    home=_LAYERS,
    base="graphfold.batching:Cell",
)

#: Task of predictions -> its metrics.
METRICS = {
    task: Registry(
        f"{task} metric",
        "metrics=[NAME,..], monitor=val/NAME",
        home=f"graphfold.metrics.{task}",
        base="graphfold.metrics.base:Metric",
        is_instance=True,
        advice="Decorate a function with @graphfold.metrics.metric(task=..., "
        "higher_is_better=...).",
    )
    for task in ("regression", "binary", "multiclass", "interval", "deviation")
}
