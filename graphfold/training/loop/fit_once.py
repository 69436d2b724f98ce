"""Fitting at once: a model without epochs, with the files that a run of one epoch has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphfold.dag.schema import Schema, bound_column
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.files import write_bytes
from graphfold.layers.baselines.fitted_model import FittedModel
from graphfold.training.loop.fit import make_loggers
from graphfold.training.loop.learner import Learner, refuse_nan
from graphfold.training.run.best_and_last import BestAndLast, write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics, score

#: Options of heads that say what an error costs.
_OF_THE_LOSS = ("loss", "delta", "target_weights", "class_weights")


def fit_once(
    config: Mapping[str, Any],
    folder: RunFolder,
    learner: Learner,
    model: FittedModel,
    data: DataModule,
    common: Checkpoint,
) -> None:
    """Fits a model to the training part, and writes best.ckpt, last.ckpt, metrics.csv and logs.

    Nothing is chosen by the validation part, which may be empty.

    Args:
        config: the config of the run.
        folder: where the files go.
        learner: what knows the metrics.
        model: what is fitted.
        data: what it is fitted to, prepared.
        common: what all checkpoints of the run share.

    Raises:
        ConfigError: if the config asks for several processes, or for less than single precision, or
            records have bounds, or the head a loss of its own.
    """
    if config["trainer"]["devices"] > 1:
        raise ConfigError(
            f"{type(model).__name__} is fitted at once and in one process. Leave out "
            "trainer.devices; threads=N sets its threads."
        )
    precision = str(config["trainer"].get("precision") or "32-true")
    if not precision.startswith(("32", "64")):
        raise ConfigError(
            f"trainer.precision is {precision}, in which what "
            f"{type(model).__name__} compares would be rounded. Set trainer.precision=32-true."
        )
    train = data.encoded("train")
    _refuse_unread(config["model"]["head"], model, train.schema)
    model.fit(train)
    metrics: Metrics = {}
    if len(data.split.val):
        rows = score(model, data.loader("val", model.passes, "depth"))
        refuse_nan(rows.loss, "of the validation part")
        metrics = {f"val/{name}": value for name, value in learner.head_metrics(rows).items()}
    history: list[Metrics] = [{"epoch": 1, "step": 1, **metrics}]
    write_history(folder.history, history)
    kept = {"history": history, "best": None, "is_finished": True}
    progress = {"epoch": 0, "callbacks": {BestAndLast.__name__: kept}}
    for path, known in ((folder.best, {"epoch": 0}), (folder.last, progress)):
        whole = replace(
            common, state_dict=model.state_dict(), progress={**known, **common.progress}
        )
        write_bytes(path, whole.encode())
    for logger in make_loggers(config, folder):
        logger.log_metrics({k: v for k, v in metrics.items() if v is not None}, 1)
        logger.finalize("success")
    shown = ", ".join(f"{k} {v:.4f}" for k, v in metrics.items() if k == learner.monitor and v)
    print(f"fitted {type(model).__name__}  {shown}".rstrip(), flush=True)


def _refuse_unread(head: Mapping[str, Any], model: FittedModel, schema: Schema) -> None:
    """Refuses bounds and losses, which would otherwise be left out without a word."""
    names = {column.name for column in schema.graph_features}
    unread = {
        "data.bounded_targets": any(bound_column(name) in names for name in model.head.targets),
        **{f"model.head.{key}": head.get(key) is not None for key in _OF_THE_LOSS},
    }
    for option, is_there in unread.items():
        if is_there:
            raise ConfigError(
                f"{type(model).__name__} does not read {option}. Leave it out, or choose a model "
                "that is trained in epochs."
            )
