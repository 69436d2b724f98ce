"""Loggers send the metrics of every epoch to other tools; configs may name others.

metrics.csv and report.html need no logger. Each logger needs its library
(`pip install graphfold[loggers]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from graphfold.errors import ConfigError, first_line
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.training_config import flatten
from graphfold.training.process.launch import is_first


class Logger(Protocol):
    """Interface of loggers, which are made with `save_dir`, the run folder."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Logs the config of the run."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Logs the metrics after some steps."""

    def finalize(self, status: str) -> None:
        """Ends the log; status is "success" or "failed"."""


class TensorBoardLogger:
    """Writes events for TensorBoard into the folder `tensorboard` of the run."""

    def __init__(self, save_dir: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(Path(save_dir) / "tensorboard"))

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Writes nothing: config.yaml is beside the events."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Writes a scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finalize(self, status: str) -> None:
        """Closes the file."""
        self._writer.close()


class MLflowLogger:
    """Sends metrics and config to MLflow, at the address in MLFLOW_TRACKING_URI.

    Args:
        save_dir: the run folder, whose name becomes the name of MLflow's run.
        experiment: the experiment of MLflow to which the run belongs.
    """

    def __init__(self, save_dir: str, experiment: str = "graphfold") -> None:
        import mlflow

        self._mlflow: Any = mlflow
        mlflow.set_experiment(experiment)
        mlflow.start_run(run_name=Path(save_dir).name)

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Sends the config, a parameter for each of its keys."""
        self._mlflow.log_params(dict(flatten(params)))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Sends the metrics after some steps."""
        self._mlflow.log_metrics(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        """Ends MLflow's run."""
        self._mlflow.end_run("FINISHED" if status == "success" else "FAILED")


class WandbLogger:
    """Sends metrics and config to Weights & Biases.

    With the environment variable WANDB_MODE=offline they stay in the run folder.

    Args:
        save_dir: the run folder.
        project: the project of the run.
    """

    def __init__(self, save_dir: str, project: str = "graphfold") -> None:
        import wandb

        self._run: Any = wandb.init(project=project, dir=save_dir)

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Sends the config."""
        self._run.config.update(dict(params))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Sends the metrics after some steps."""
        self._run.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        """Ends the run."""
        self._run.finish(exit_code=0 if status == "success" else 1)


def make_loggers(
    nodes: Mapping[str, Any] | None, config: Mapping[str, Any], folder: Path
) -> list[Logger]:
    """The loggers of a config; none in further processes of a training.

    Args:
        nodes: name -> config of a logger; None for no loggers.
        config: the config of the run, which each logger logs.
        folder: the run folder.

    Raises:
        ConfigError: if the library of a logger is absent.
    """
    loggers = []
    for name, node in (nodes or {}).items() if is_first() else ():
        try:
            logger = instantiate(node, f"logger.{name}")(save_dir=str(folder))
        except ImportError as error:
            raise ConfigError(
                f"logger.{name} needs a library that cannot be imported ({first_line(error)}). "
                "pip install graphfold[loggers], or leave it out."
            ) from error
        logger.log_hyperparams(dict(config))
        loggers.append(logger)
    return loggers


def end_loggers(loggers: Iterable[Logger], status: str = "success") -> None:
    """Finalizes loggers."""
    for logger in loggers:
        logger.finalize(status)
