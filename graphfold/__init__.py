"""graphfold: neural networks whose computation graph differs for every example, in batches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfold.training.prediction.predictor import load as load

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`load` and the version, found when first asked for: importing graphfold costs nothing."""
    if name == "load":
        return import_module("graphfold.training.prediction.predictor").load
    if name == "__version__":
        return import_module("importlib.metadata").version("graphfold")
    raise AttributeError(f"module 'graphfold' has no attribute '{name}'")
