"""Training, evaluation and prediction: what the commands do."""

from importlib import import_module
from typing import Any

_HOME = {
    "Checkpoint": "run.checkpoint",
    "Learner": "loop.learner",
    "Predictor": "prediction.predictor",
    "RunFolder": "run.run_folder",
    "compose": "config.compose",
    "evaluate": "scoring.evaluate",
    "load": "prediction.predictor",
    "predict_file": "prediction.predict",
    "train": "loop.train",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for: lightning takes seconds to import."""
    if name not in _HOME:
        raise AttributeError(f"module 'graphfold.training' has no attribute '{name}'")
    return getattr(import_module(f"graphfold.training.{_HOME[name]}"), name)
