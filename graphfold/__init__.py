"""graphfold: batched neural networks over a different computation graph for every example."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfold.batching.cell_check import check as check
    from graphfold.inference.predictor import load as load
    from graphfold.inference.table_predictor import TablePredictor as TablePredictor
    from graphfold.recipe import train as train
    from graphfold.training.process.process import keep_memory as keep_memory

    __version__: str

__all__ = ["TablePredictor", "__version__", "check", "keep_memory", "load", "train"]

_PLACES = {
    "TablePredictor": "graphfold.inference.table_predictor",
    "check": "graphfold.batching.cell_check",
    "keep_memory": "graphfold.training.process.process",
    "load": "graphfold.inference.predictor",
    "train": "graphfold.recipe",
}


if not TYPE_CHECKING:  # for a type checker a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        """Imports a public name at its first use: importing graphfold imports nothing else."""
        if name in _PLACES:
            return getattr(import_module(_PLACES[name]), name)
        if name == "__version__":
            return import_module("importlib.metadata").version("graphfold")
        raise AttributeError(f"module 'graphfold' has no attribute '{name}'")
