"""The parts of a config are tried before any work: classes, arguments, options of the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch

from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import ConfigError, GraphfoldError, RecordError
from graphfold.layers.uncertainty.calibrated import CalibrationSettings
from graphfold.metrics.registry import find_metric, metric_names
from graphfold.options import parameters
from graphfold.registry import ADAPTERS
from graphfold.training.config.instantiate import check_targets, find_target, instantiate
from graphfold.training.config.model import AUTO, shared_keys
from graphfold.training.config.overrides import adapter_name
from graphfold.training.process.quiet import quiet_lightning

#: Arguments of Lightning's trainer that our manual optimisation takes over.
OURS = ("accumulate_grad_batches", "gradient_clip_val")


def check_parts(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that lists every fault of model, optimizer and data; reads no data.

    It does without Lightning, which takes longer to load than all else.

    Args:
        config: a whole config.
    """
    faults = check_targets(_without(config["model"], shared_keys(config["model"])), "model")
    for name in ("optimizer", "lr_scheduler"):
        faults += check_targets(_without(config[name], ()), name)
    with _collected(faults):
        for name in metric_names(config.get("metrics")) or ():
            find_metric(name)
    with _collected(faults):
        CalibrationSettings.of(config)
    with _collected(faults):
        _refuse_unmet_needs(config)
        _peek(DataModule(**config["data"]))
    if not faults:  # torch loads its compiler to make an optimizer
        with _collected(faults):
            _try_optimizer(config)
    if faults:
        raise ConfigError("\n".join(faults))


def check_trainer(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that lists every fault of trainer, callbacks and loggers."""
    faults = check_targets(_without(config["trainer"], OURS), "trainer")
    for name in ("callbacks", "logger"):
        faults += check_targets(_without(config[name], ()), name)
    if not faults:
        faults += _kind_faults(config)
        with _collected(faults):
            _try_trainer(config)
    if faults:
        raise ConfigError("\n".join(faults))


def _kind_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """The faults of what is no callback or logger, or not made as the trainer needs it."""
    from lightning.pytorch.callbacks import Callback, EarlyStopping
    from lightning.pytorch.loggers import Logger

    for name, kind in (("callbacks", Callback), ("logger", Logger)):
        given = {k: node for k, node in (config[name] or {}).items() if node is not None}
        for key, node in given.items():
            is_node = isinstance(node, dict) and "_target_" in node
            target = find_target(node["_target_"], f"{name}.{key}") if is_node else None
            is_late = kind is Logger or target is EarlyStopping  # it is told more when it is made
            if not (isinstance(target, type) and issubclass(target, kind)):
                yield f"{name}.{key} is no {kind.__name__}. Give its _target_, or null."
            elif bool(node.get("_partial_")) is not is_late:
                yield f"{name}.{key}._partial_ must be {str(is_late).lower()}."


def _refuse_unmet_needs(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option of the data that the model needs and no adapter has."""
    adapter = adapter_name(config["data"])
    for name, value in (config["model"].get("needs_data") or {}).items():
        if name not in parameters(ADAPTERS.find(adapter)):
            raise ConfigError(
                f"the model needs data.{name}={json.dumps(value)}, but the {adapter} adapter has "
                "no such option. Choose another model."
            )


def _peek(data: DataModule) -> None:
    """Raises DataError for a file that is not there, or one's own that lacks columns asked for."""
    corpus = data.source.corpus
    if data.source.path is None and corpus is not None and find_corpus(corpus).maker is None:
        data.source.files(data.root, data.cache_dir)
    adapter = data.source.spec().make()
    own = data.source.path is not None
    for file in data.source.files(data.root, data.cache_dir) if own else ():
        with suppress(RecordError):  # a bad record is a matter of data.on_error
            next(iter(adapter.records(file.path)), None)


def _try_optimizer(config: Mapping[str, Any]) -> None:
    """Builds optimizer and schedule over a stand-in for the parameters."""
    optimizer = instantiate(config["optimizer"], "optimizer")
    made = _call(optimizer, "optimizer", [torch.nn.Parameter(torch.zeros(1))])
    if config["lr_scheduler"] is not None:
        _call(instantiate(config["lr_scheduler"], "lr_scheduler"), "lr_scheduler", made)


def _try_trainer(config: Mapping[str, Any]) -> None:
    given = _without(config["trainer"], ("_target_", *OURS))
    target = find_target(config["trainer"]["_target_"], "trainer")
    _call(target, "trainer", logger=False, enable_checkpointing=False, **given)


def _call(make: Callable[..., Any], place: str, *args: Any, **kwargs: Any) -> Any:
    try:
        with quiet_lightning():
            return make(*args, **kwargs)
    except GraphfoldError:
        raise
    except Exception as error:  # whatever a library raises about arguments
        raise ConfigError(f"{place}: {str(error).rstrip('.')}. Correct the config.") from error


def _without(node: Any, names: tuple[str, ...]) -> Any:
    """A copy of a config without some keys, and without classes that are chosen later."""
    if isinstance(node, dict):
        kept = {k: _without(v, ()) for k, v in node.items() if k not in names}
        return {} if kept.get("_target_") == AUTO else kept
    return [_without(item, ()) for item in node] if isinstance(node, list) else node


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    try:
        yield
    except GraphfoldError as error:
        faults.append(error.message)
