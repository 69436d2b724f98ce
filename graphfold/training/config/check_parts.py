"""Checks of a config for which torch is loaded: its classes, their options, the data's columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError, GraphfoldError, RecordError
from graphfold.metrics.metric_names import find_metric
from graphfold.options import parameters
from graphfold.registry import ADAPTERS
from graphfold.training.config.build_model import AUTO, absent_options, own_options
from graphfold.training.config.instantiate import check_targets, find_target, instantiate
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.wrong_overrides import adapter_name
from graphfold.training.loop.loop import Callback


def check_parts(config: TrainingConfig) -> DataModule:
    """Checks classes and options of a config; returns its data, which are not read yet.

    Raises:
        ConfigError: that lists every fault.
    """
    data = None
    faults = check_targets(_without_auto(own_options(config.model)), "model")
    faults += absent_options(config.model)
    for name in ("optimizer", "lr_scheduler", "callbacks", "logger"):
        faults += check_targets(_without_auto(config.mapping[name]), name)
    faults += _kind_faults(config)
    with _collected(faults):
        config.trainer.device()
    with _collected(faults):
        for name in config.metrics or ():
            find_metric(name)
    with _collected(faults):
        _refuse_unmet_needs(config)
        data = DataModule(**config.data)
        _read_first_records(data)
    if not faults:  # torch loads its compiler to make an optimizer
        with _collected(faults):
            _try_optimizer(config)
    if faults or data is None:
        raise ConfigError("\n".join(faults))
    return data


def _kind_faults(config: TrainingConfig) -> Iterator[str]:
    """The faults of callbacks and loggers: wrong base class, wrong `_partial_`."""
    for key, node in (config.callbacks or {}).items():
        place, target = f"callbacks.{key}", _target(node, f"callbacks.{key}")
        if target is None:
            continue
        if not (isinstance(target, type) and issubclass(target, Callback)):
            yield f"{place} is no Callback. Derive it from graphfold.training.Callback."
        elif node.get("_partial_"):
            yield f"{place}._partial_ must be false."
    for key, node in (config.logger or {}).items():
        place, target = f"logger.{key}", _target(node, f"logger.{key}")
        if target is None:
            continue
        if not callable(getattr(target, "log_metrics", None)):
            yield f"{place} is no logger: it has no log_metrics. Name a class that has."
        elif not node.get("_partial_"):  # the run folder is added when the run begins
            yield f"{place}._partial_ must be true."


def _target(node: dict[str, Any], place: str) -> Callable[..., Any] | None:
    """The class of a part; None for a wrong name, which `check_targets` reports."""
    with suppress(ConfigError):
        return find_target(node["_target_"], place)
    return None


def _refuse_unmet_needs(config: TrainingConfig) -> None:
    """Raises ConfigError if the model needs an option of the data that the adapter lacks."""
    adapter = adapter_name(config.data)
    for name, value in (config.model.get("needs_data") or {}).items():
        if name not in parameters(ADAPTERS.find(adapter)):
            raise ConfigError(
                f"the model needs data.{name}={json.dumps(value)}, but the {adapter} adapter has "
                "no such option. Choose another model."
            )


def _read_first_records(data: DataModule) -> None:
    """Raises DataError for an absent file, or a file of the user that lacks a needed column."""
    corpus = data.source.corpus
    if data.source.path is None and corpus is not None and find_corpus(corpus).maker is None:
        data.source.files(data.root, data.cache_dir)
    adapter = data.source.spec.make()
    is_users = data.source.path is not None
    for file in data.source.files(data.root, data.cache_dir) if is_users else ():
        with suppress(RecordError):  # data.on_error decides about bad records
            next(iter(adapter.records(file.path)), None)


def _try_optimizer(config: TrainingConfig) -> None:
    """Builds optimizer and schedule over a stand-in for the parameters."""
    optimizer = instantiate(config.optimizer, "optimizer")
    made = _call(optimizer, "optimizer", [torch.nn.Parameter(torch.zeros(1))])
    if config.lr_scheduler is not None:
        _call(instantiate(config.lr_scheduler, "lr_scheduler"), "lr_scheduler", made)


def _call(make: Callable[..., Any], place: str, *args: Any, **kwargs: Any) -> Any:
    try:
        return make(*args, **kwargs)
    except GraphfoldError:
        raise
    except Exception as error:  # libraries raise errors of any kind about arguments
        raise ConfigError(f"{place}: {str(error).rstrip('.')}. Correct the config.") from error


def _without_auto(node: Any) -> Any:
    """A copy of a config without the classes that the data choose later."""
    if isinstance(node, dict):
        rest = {key: _without_auto(value) for key, value in node.items()}
        return {} if rest.get("_target_") == AUTO else rest
    return [_without_auto(item) for item in node] if isinstance(node, list) else node


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    """Adds the message of an error within to the faults."""
    try:
        yield
    except GraphfoldError as error:
        faults.append(error.message)
