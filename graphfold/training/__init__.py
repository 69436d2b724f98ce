"""Training, evaluation and prediction: what the commands do."""

from importlib import import_module
from typing import Any

_HOME = {
    "Checkpoint": "checkpoint",
    "Learner": "learner",
    "Predictor": "predictor",
    "RunFolder": "run_folder",
    "compose": "compose",
    "evaluate": "evaluate",
    "load": "predictor",
    "predict_file": "predict",
    "train": "train",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for: lightning takes seconds to import."""
    if name not in _HOME:
        raise AttributeError(f"module 'graphfold.training' has no attribute '{name}'")
    return getattr(import_module(f"graphfold.training.{_HOME[name]}"), name)
