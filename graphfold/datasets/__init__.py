"""From files to batches: adapters, records, and the data module that serves them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfold.datasets.adapter import Adapter as Adapter
    from graphfold.datasets.adapter import Record as Record
    from graphfold.datasets.data_module import DataModule as DataModule
    from graphfold.datasets.readers.graphs import load_graphs as load_graphs
    from graphfold.datasets.readers.graphs import save_graphs as save_graphs

_HOME = {
    "Adapter": "adapter",
    "DataModule": "data_module",
    "Record": "adapter",
    "load_graphs": "readers.graphs",
    "save_graphs": "readers.graphs",
}

__all__ = ["Adapter", "DataModule", "Record", "load_graphs", "save_graphs"]


if not TYPE_CHECKING:  # for a type checker a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        """Imports a public name at its first use: `Adapter` needs no data module."""
        if name not in _HOME:
            raise AttributeError(f"module 'graphfold.datasets' has no attribute '{name}'")
        return getattr(import_module(f"graphfold.datasets.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for help and completion."""
    return sorted(__all__)
