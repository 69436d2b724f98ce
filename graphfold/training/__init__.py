"""Training: the configuration, the loop with its callbacks and loggers, and the run folder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfold.training.loop.callbacks import AverageWeights as AverageWeights
    from graphfold.training.loop.callbacks import EarlyStopping as EarlyStopping
    from graphfold.training.loop.loggers import MLflowLogger as MLflowLogger
    from graphfold.training.loop.loggers import TensorBoardLogger as TensorBoardLogger
    from graphfold.training.loop.loggers import WandbLogger as WandbLogger
    from graphfold.training.loop.loop import Callback as Callback
    from graphfold.training.loop.loop import Loop as Loop
    from graphfold.training.trainer import Trainer as Trainer

_HOME = {
    "AverageWeights": "loop.callbacks",
    "Callback": "loop.loop",
    "EarlyStopping": "loop.callbacks",
    "Loop": "loop.loop",
    "MLflowLogger": "loop.loggers",
    "TensorBoardLogger": "loop.loggers",
    "Trainer": "trainer",
    "WandbLogger": "loop.loggers",
}

__all__ = [
    "AverageWeights",
    "Callback",
    "EarlyStopping",
    "Loop",
    "MLflowLogger",
    "TensorBoardLogger",
    "Trainer",
    "WandbLogger",
]


if not TYPE_CHECKING:  # for a type checker a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        """Imports a public name at its first use: the loop loads torch and the engine."""
        if name not in _HOME:
            raise AttributeError(f"module 'graphfold.training' has no attribute '{name}'")
        return getattr(import_module(f"graphfold.training.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for help and completion."""
    return sorted(__all__)
