"""Configs that name Lightning's trainer, callbacks and loggers, as earlier versions wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: Options of Lightning's trainer that decide nothing here.
_IDLE = (
    *("logger", "callbacks", "default_root_dir", "log_every_n_steps"),
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "barebones"),
    *("num_sanity_val_steps", "use_distributed_sampler", "inference_mode", "benchmark"),
    *("deterministic", "enable_autolog_hparams", "model_registry"),
)
#: Values of others with which they change nothing.
_OFF: dict[str, tuple[object, ...]] = {
    "strategy": ("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook", "single_device"),
    "check_val_every_n_epoch": (1,),
    "val_check_interval": (1.0,),
    "limit_test_batches": (1.0,),
    "limit_predict_batches": (1.0,),
    "gradient_clip_algorithm": ("norm",),
}

#: Other options of Lightning's trainer -> what does the same here.
_INSTEAD = {
    "strategy": "trainer.devices=N, torchrun or srun starts processes that share each step.",
    "fast_dev_run": "Set trainer.limit_train_batches=1 and trainer.max_epochs=1.",
    "overfit_batches": "Set trainer.limit_train_batches.",
    "limit_test_batches": "graphfold evaluate scores a file of any size.",
    "limit_predict_batches": "graphfold predict reads a file of any size.",
    "gradient_clip_algorithm": "The norm of the whole step's gradient is clipped.",
    "max_steps": "Set trainer.max_epochs.",
    "max_time": "graphfold train resume=RUN continues a run that SIGTERM has ended.",
    "min_epochs": "Set callbacks.early_stopping.patience.",
    "check_val_every_n_epoch": "Every epoch is validated.",
    "val_check_interval": "Every epoch is validated.",
    "sync_batchnorm": "Statistics of normalisation are those of the first process.",
    "plugins": "Write a graphfold.training.Callback.",
    "profiler": "Use torch.profiler around graphfold.train.",
}

#: Parts of Lightning's that earlier configs name -> ours, and options that decide nothing there.
_FROM_LIGHTNING = {
    "lightning.pytorch.callbacks.EarlyStopping": (
        "graphfold.training.EarlyStopping",
        ("verbose", "strict", "check_finite", "check_on_train_epoch_end", "log_rank_zero_only"),
    ),
    "lightning.pytorch.callbacks.LearningRateMonitor": (
        "graphfold.training.LearningRateMonitor",
        ("log_momentum", "log_weight_decay"),
    ),
    "lightning.pytorch.callbacks.StochasticWeightAveraging": (
        "graphfold.training.StochasticWeightAveraging",
        ("annealing_strategy", "avg_fn", "device"),
    ),
    "graphfold.training.loop.averaging.AverageWeights": ("graphfold.training.AverageWeights", ()),
    "lightning.pytorch.loggers.TensorBoardLogger": (
        "graphfold.training.TensorBoardLogger",
        ("log_graph", "default_hp_metric", "prefix", "sub_dir"),
    ),
}


def with_own_loop(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config that names Lightning's trainer, callbacks and loggers, with ours in their place.

    Those of them that have no counterpart stay: callbacks are refused then, and loggers work where
    lightning is installed.
    """
    config = dict(config)
    trainer = config.get("trainer")
    if isinstance(trainer, Mapping) and str(trainer.get("_target_")).startswith("lightning."):
        config["trainer"] = {**_without_idle(trainer), "_target_": "graphfold.training.Trainer"}
    for group in ("callbacks", "logger"):
        nodes = config.get(group)
        if isinstance(nodes, Mapping):
            config[group] = {name: _with_own_part(node) for name, node in nodes.items()}
    return config


def _with_own_part(node: Any) -> Any:
    if not isinstance(node, Mapping) or str(node.get("_target_")) not in _FROM_LIGHTNING:
        return node
    target, idle = _FROM_LIGHTNING[str(node["_target_"])]
    part = {key: value for key, value in node.items() if key not in idle}
    if not target.endswith("Logger"):  # a callback learns the metric when training starts
        part.pop("_partial_", None)
    return {**part, "_target_": target}


def foreign_options(options: Iterable[str]) -> Iterator[str]:
    """Sentences about options that are Lightning's, and not of `Trainer`."""
    for name in options:
        if name in _INSTEAD or name in _IDLE:
            instead = _INSTEAD.get(name, "It decides nothing here.")
            yield f"trainer.{name} is an option of Lightning's trainer. {instead} Leave it out."


def _without_idle(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for Lightning's trainer, without those that decide nothing."""
    return {
        name: value
        for name, value in options.items()
        if name not in _IDLE
        and not (name in _INSTEAD and value in (None, False, 0, -1, *_OFF.get(name, ())))
    }
