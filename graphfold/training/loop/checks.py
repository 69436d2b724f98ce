"""Checks of a model and its data before and during training.

Molecules in several parts, targets without values, options without effect, sharing of equal nodes,
and the execution of cells.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphfold.dag import TypedDAG
from graphfold.datasets.corpora.corpus import PARTS
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.graph_hash import describe_leak, has_molecules
from graphfold.errors import ConfigError, DataError, some_of
from graphfold.layers import Head, Model
from graphfold.layers.dropout import drops_out
from graphfold.layers.molecules.message_passing import AfterConvolution
from graphfold.layers.normalisation import is_batch_norm
from graphfold.layers.uncertainty.calibration import makes_intervals
from graphfold.options import refuse_unread
from graphfold.training.config.training_config import CalibrationSettings, TrainingConfig

if TYPE_CHECKING:
    from graphfold.training.loop.loop import Loop


def warn_of_leak(data: DataModule) -> None:
    """Warns of molecules that are both in train and held out, and notes them for the report."""
    if not has_molecules(data.facts):
        return
    leak = describe_leak(data.facts, data.hashes, data.split)
    if leak is not None:
        data.split = replace(data.split, notes=(*data.split.notes, leak))
        warnings.warn(leak, stacklevel=2)


def check_targets(model: Model, data: DataModule) -> None:
    """Raises DataError for a target in any part that the head of a model cannot learn."""
    head = model.head
    if type(head).check_targets is Head.check_targets:  # all targets are valid
        return
    for part in PARTS:
        for piece in data.chunks(part, encoded=True, facts=head.level == "graph"):
            head.check_targets(head.target_rows(piece))


def check_measured(model: Model, train: Iterable[TypedDAG]) -> None:
    """Warns of targets without a value in the training part.

    A record of weight 0 has none.

    Args:
        model: the model.
        train: the training part, encoded, in pieces; for targets of graphs it may lack the nodes.

    Raises:
        DataError: if no target has a value.
    """
    targets = model.head.targets
    any_measured, num_graphs = torch.zeros(len(targets), dtype=torch.bool), 0
    for part in train:
        rows = model.head.measured(model.head.target_rows(part))
        rows = rows.reshape(len(rows), len(targets))
        weights = part.weights()
        if weights is not None:
            rows = rows & (weights > 0)[model.head.row_graph(part)].unsqueeze(1)
        any_measured |= rows.any(0)
        num_graphs += part.num_graphs
    measured = any_measured.tolist()
    if not any(measured):
        raise DataError(
            f"none of the {num_graphs} training records has a value of "
            f"{some_of(targets)}. Give other data, or train on another target."
        )
    absent = [f"'{name}'" for name, has in zip(targets, measured, strict=True) if not has]
    if absent:
        verb, pronoun = ("is", "it") if len(absent) == 1 else ("are", "them")
        warnings.warn(
            f"{some_of(absent)} {verb} measured nowhere in the training part, so nothing of "
            f"{pronoun} is learnt, and predictions of {pronoun} mean nothing.",
            stacklevel=2,
        )


def refuse_unread_options(config: TrainingConfig, loop: Loop, num_val: int) -> None:
    """Refuses options of training without effect for this head and these data.

    Args:
        config: the configuration of a new run.
        loop: the loop of the run, with the model.
        num_val: the number of validation records.

    Raises:
        ConfigError: for the first such option.
    """
    head, calibration = loop.model.head, config.calibration
    if head.level == "graph":
        remedy = "Choose a target of nodes"
        reduction = config.loss["reduction"]
        refuse_unread("loss.reduction", reduction, "per_graph", "a target of graphs", remedy)
    if not makes_intervals(head, calibration.method):
        beside = f"calibration.method={calibration.method}, without intervals"
        level, default = calibration.level, CalibrationSettings.level
        refuse_unread("calibration.level", level, default, beside, "Set calibration.method")
    if not num_val:
        _refuse_unvalidated(config, loop)


def _refuse_unvalidated(config: TrainingConfig, loop: Loop) -> None:
    """Raises ConfigError for options that need a validation part."""
    beside, remedy = "no validation part", "Set data.fractions with a share for val"
    method = config.calibration.method
    for option, value, default in (
        ("monitor", config.monitor, None),
        ("trainer.limit_val_batches", config.trainer.limit_val_batches, None),
        ("calibration.method", "auto" if method == "none" else method, "auto"),
    ):
        refuse_unread(option, value, default, beside, remedy)
    readers = [type(c).__name__ for c in loop.callbacks if c.reads_validation]
    make = loop.make_lr_scheduler
    if getattr(make, "func", make) is ReduceLROnPlateau:
        readers.append("ReduceLROnPlateau")
    if readers:
        raise ConfigError(
            f"{readers[0]} waits for metrics of the validation part, and there is none. {remedy}, "
            "or leave it out."
        )


def check_padding(model: Model, data: DataModule) -> None:
    """Raises ConfigError if a part of a model would take padding for nodes; see `Padding`."""
    known = {module.norm for module in model.modules() if isinstance(module, AfterConvolution)}
    for name, module in model.named_modules():
        if data.settings.shapes == "static" and is_batch_norm(module) and module not in known:
            raise ConfigError(
                f"data.shapes=static pads batches, and {name}, a {type(module).__name__}, would "
                "take statistics over padding. Use LayerNorm, or set data.shapes=free."
            )


#: Words in the names of torch's functions that draw, or may read more than one row.
_NOT_BY_ROW = ("dropout", "norm", "rand", "rrelu", "bernoulli", "gumbel", "multinomial")


def choose_sharing(data: DataModule, model: Model, training: bool) -> bool:
    """The value of `data.share`; for "auto", the result of `can_share`.

    Args:
        data: the data.
        model: the model.
        training: whether the model is in training mode.
    """
    return can_share(model, training) if data.share == "auto" else bool(data.share)


def can_share(model: Model, training: bool = False) -> bool:
    """True if equal nodes can safely be computed once.

    That is not so if a part before the readout draws random numbers (dropout in training), reads
    the full batch (batch normalisation in training), or is code of neither torch nor graphfold,
    whose effect is unknown. For such code that treats every row separately, set `data.share=true`;
    the engine then refuses cells that draw numbers or change buffers.

    Args:
        model: the model.
        training: whether the model is in training mode.
    """
    return all(_is_by_row(part, training) for part in model.state_parts())


def _is_by_row(part: Callable[..., Any], training: bool) -> bool:
    if not isinstance(part, nn.Module):
        return _acts_by_row(part)
    if type(part).__module__.split(".")[0] not in ("torch", "graphfold"):
        return False
    if is_batch_norm(part):
        return not training and getattr(part, "running_mean", None) is not None
    functions = (value for value in vars(part).values() if callable(value))
    return not (training and _draws(part)) and all(map(_acts_by_row, functions))


def _acts_by_row(function: Callable[..., Any]) -> bool:
    """True if a function is of torch or graphfold, and treats every row separately."""
    name = getattr(function, "__name__", "")
    if (getattr(function, "__module__", None) or "").startswith("graphfold."):
        return True
    is_torch = any(getattr(home, name, None) is function for home in (torch, functional, nn.init))
    return is_torch and not any(word in name for word in _NOT_BY_ROW)


def _draws(module: nn.Module) -> bool:
    """True if a module draws random numbers in training."""
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    return drops_out(module) or isinstance(module, nn.RReLU)


#: The largest number of types that are listed; more are counted.
MAX_NAMED = 6


def describe_execution(model: Model) -> str:
    """The execution of cells, such as "leaf, node compiled"; "" if it is unknown."""
    types: dict[str, list[str]] = {}  # how -> the types that ran so
    for name, how in model.networks[0].execution.items():
        types.setdefault(" ".join(how.split()), []).append(name)
    return "; ".join(
        f"{', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} types'} {how}"
        for how, names in types.items()
    )
