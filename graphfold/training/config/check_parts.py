"""The parts of a config are tried before any work: classes, arguments, options of the data."""

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
from graphfold.training.config.overrides import adapter_name
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.loop import Callback
from graphfold.training.trainer import Trainer


def check_parts(config: TrainingConfig) -> DataModule:
    """Checks the parts of a config, and returns its data, of which nothing is read yet.

    Raises:
        ConfigError: that lists every fault.
    """
    data = None
    faults = check_targets(_without_auto(own_options(config.model)), "model")
    faults += absent_options(config.model)
    for name in ("optimizer", "lr_scheduler", "callbacks", "logger"):
        faults += check_targets(_without_auto(config.mapping[name]), name)
    faults += [*_trainer_faults(config), *_kind_faults(config)]
    with _collected(faults):
        for name in config.metrics or ():
            find_metric(name)
    with _collected(faults):
        _refuse_unmet_needs(config)
        data = DataModule(**config.data)
        _peek(data)
    if not faults:  # torch loads its compiler to make an optimizer
        with _collected(faults):
            _try_optimizer(config)
    if faults or data is None:
        raise ConfigError("\n".join(faults))
    return data


def _trainer_faults(config: TrainingConfig) -> Iterator[str]:
    """The faults of the trainer beside the values of its options."""
    node = {"_target_": "graphfold.training.Trainer", **config.mapping["trainer"]}
    faults = check_targets(node, "trainer")
    yield from faults
    if not faults and find_target(node["_target_"], "trainer") is not Trainer:
        yield "trainer._target_ must be graphfold.training.Trainer. Leave it out."
    try:
        config.trainer.device()
    except ConfigError as error:
        yield error.message


def _kind_faults(config: TrainingConfig) -> Iterator[str]:
    """The faults of what is no callback or logger, or not made as it is to be."""
    for group, nodes in (("callbacks", config.callbacks), ("logger", config.logger)):
        for key, node in (nodes or {}).items():
            place, is_logger = f"{group}.{key}", group == "logger"
            target = None
            if isinstance(node, dict) and "_target_" in node:
                with suppress(ConfigError):  # which check_targets says
                    target = find_target(node["_target_"], place)
                if target is None:
                    continue
            if is_logger and not callable(getattr(target, "log_metrics", None)):
                yield f"{place} is no logger: it has no log_metrics. Give its _target_, or null."
            elif not is_logger and not (isinstance(target, type) and issubclass(target, Callback)):
                hint = "" if target is None else " Derive it from graphfold.training.Callback."
                yield f"{place} is no Callback.{hint} Give its _target_, or null."
            elif bool(node.get("_partial_")) is not is_logger:  # a logger is told the run folder
                yield f"{place}._partial_ must be {str(is_logger).lower()}."


def _refuse_unmet_needs(config: TrainingConfig) -> None:
    """Raises ConfigError for an option of the data that the model needs and no adapter has."""
    adapter = adapter_name(config.data)
    for name, value in (config.model.get("needs_data") or {}).items():
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
    adapter = data.source.spec.make()
    own = data.source.path is not None
    for file in data.source.files(data.root, data.cache_dir) if own else ():
        with suppress(RecordError):  # a bad record is a matter of data.on_error
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
    except Exception as error:  # whatever a library raises about arguments
        raise ConfigError(f"{place}: {str(error).rstrip('.')}. Correct the config.") from error


def _without_auto(node: Any) -> Any:
    """A copy of a config without the classes that are chosen later."""
    if isinstance(node, dict):
        kept = {key: _without_auto(value) for key, value in node.items()}
        return {} if kept.get("_target_") == AUTO else kept
    return [_without_auto(item) for item in node] if isinstance(node, list) else node


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    try:
        yield
    except GraphfoldError as error:
        faults.append(error.message)
