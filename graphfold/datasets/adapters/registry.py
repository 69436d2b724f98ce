"""Adapters by name: graphfold's own, those of other packages, and any class by its dotted path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from graphfold.datasets.adapters.option_types import option_faults
from graphfold.datasets.import_path import import_path
from graphfold.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from graphfold.datasets.adapter import Adapter

#: graphfold's own adapters. The classes are imported when they are asked for, not before.
ADAPTERS: Mapping[str, str] = {
    "brackets": "graphfold.datasets.adapters.brackets:BracketsAdapter",
    "conllu": "graphfold.datasets.adapters.conllu:ConlluAdapter",
    "json": "graphfold.datasets.adapters.json_records:JsonAdapter",
    "descriptors": "graphfold.datasets.adapters.descriptors:DescriptorsAdapter",
    "listops": "graphfold.datasets.adapters.listops:ListOpsAdapter",
    "pairs": "graphfold.datasets.adapters.pairs:PairsAdapter",
    "plans": "graphfold.datasets.adapters.plans:PlansAdapter",
    "python": "graphfold.datasets.adapters.python_source:PythonAdapter",
    "smiles": "graphfold.datasets.adapters.smiles:SmilesAdapter",
}

#: The entry point group in which another package names its adapters.
ENTRY_POINTS = "graphfold.adapters"


@dataclass(frozen=True)
class AdapterSpec:
    """An adapter by name, with its options: what a config, a cache and a checkpoint say of it.

    Args:
        name: a registered name, or the dotted path of a class ("package.module.Class").
        options: keyword arguments of that class.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Adapter:
        """The adapter itself; raises as `make_adapter` does."""
        return make_adapter(self.name, **self.options)


def adapter_paths() -> dict[str, str]:
    """Name -> class path of every adapter that is installed; nothing is imported."""
    theirs = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {**theirs, **ADAPTERS}


def adapter_class(name: str) -> type[Adapter]:
    """The class of an adapter, from its name or its dotted path.

    Raises:
        ConfigError: if there is no such name, module or class, or the class is no adapter.
    """
    from graphfold.datasets.adapter import Adapter

    paths = adapter_paths()
    if name not in paths and "." not in name:
        raise ConfigError(
            f"there is no adapter '{name}'.{did_you_mean(name, paths)} Use one of "
            f"{', '.join(sorted(paths))}, or the dotted path of a class.",
            adapter=name,
        )
    path = paths.get(name, name)
    module_name, _, class_name = path.replace(":", ".").rpartition(".")
    found = import_path(path, f"adapter '{name}'")
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        fault = "has no such class" if found is None else "does not derive it from Adapter"
        raise ConfigError(
            f"adapter '{name}': {module_name} {fault}: {class_name}. Correct the path.",
            adapter=name,
        )
    if inspect.isabstract(found):
        raise ConfigError(
            f"adapter '{name}': {class_name} lacks {', '.join(sorted(found.__abstractmethods__))}. "
            "Write them, or name a class that has them.",
            adapter=name,
        )
    return found


def make_adapter(name: str, **options: Any) -> Adapter:
    """Builds an adapter from its name and its options.

    Raises:
        ConfigError: if the adapter or an option is unknown, an option is absent or has a value of
            the wrong type; all faults of the options together.
    """
    cls = adapter_class(name)
    faults = option_faults(f"the {name} adapter", cls, options)
    if faults:
        raise ConfigError("\n".join(faults), adapter=name)
    return cls(**options)
