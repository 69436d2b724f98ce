"""An adapter by name and options, as configs, caches and checkpoints describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphfold.datasets.features.feature_sources import read_sources
from graphfold.errors import ConfigError
from graphfold.options import option_faults, parameters
from graphfold.registry import ADAPTERS

if TYPE_CHECKING:
    from graphfold.datasets.adapter import Adapter


@dataclass(frozen=True)
class AdapterSpec:
    """The name and the options of an adapter.

    Args:
        name: a registered name, or the dotted path of a class ("package.module.Class").
        options: keyword arguments of that class.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Adapter:
        """The adapter, built at the first call; raises as `make_adapter` does."""
        return self._adapter

    @cached_property
    def _adapter(self) -> Adapter:
        return make_adapter(self.name, **self.options)

    def __getstate__(self) -> dict[str, Any]:
        """Name and options; another process builds its own adapter."""
        return {"name": self.name, "options": self.options}


def make_adapter(name: str, features_from: Any = None, **options: Any) -> Adapter:
    """Builds an adapter from its name and its options.

    Args:
        name: its name.
        features_from: features from elsewhere, see `feature_sources`; for every adapter.
        **options: its own options.

    Raises:
        ConfigError: if the adapter or an option is unknown, an option is absent or has a value of
            the wrong type; all faults of the options together.
    """
    kind: type[Adapter] = ADAPTERS.find(name)
    faults = option_faults(f"the {name} adapter", kind, options)
    if faults:
        raise ConfigError("\n".join(faults), adapter=name)
    adapter = kind(**options)
    if features_from is None:
        return adapter
    from graphfold.datasets.features.features_from import FeaturesAdapter  # loads torch

    return FeaturesAdapter(adapter, read_sources(features_from))


def adapter_options(name: str) -> list[str]:
    """The names of the options of an adapter; raises ConfigError if it is unknown."""
    return [*parameters(ADAPTERS.find(name)), "features_from"]
