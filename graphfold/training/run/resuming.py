"""Going on with a run: what its last checkpoint says of its progress, and what may be changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.splits.split import Split
from graphfold.errors import CheckpointError, ConfigError
from graphfold.layers import Model
from graphfold.training.loop.optimizer import LENGTHS
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.weights import check_weights


def change_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config with other values at some dotted keys."""
    changed = copy.deepcopy(dict(config))
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        changed[section][name] = value
    return changed


def check_epochs(config: Mapping[str, Any], stored: Mapping[str, Any], done: int) -> None:
    """Refuses fewer epochs than are done; warns of a schedule that is made for fewer.

    Args:
        config: the config to go on with.
        stored: that of the run so far.
        done: how many epochs it has.

    Raises:
        ConfigError: if there are to be fewer.
    """
    wanted, before = config["trainer"]["max_epochs"], stored["trainer"]["max_epochs"]
    if wanted < done and wanted != before:
        raise ConfigError(
            f"trainer.max_epochs is {wanted}, but the run has {done} epochs already. Give more to "
            "go on, or start a new run."
        )
    schedule = config["lr_scheduler"] or {}
    for name in LENGTHS:
        if wanted > before and isinstance(schedule.get(name), int) and schedule[name] < wanted:
            warnings.warn(
                f"lr_scheduler.{name} is {schedule[name]}: the schedule of the learning rate was "
                f"made for so many epochs, and its further course is not that of a run of {wanted}."
                " For a schedule over all epochs start a new run, with init_from=RUN if you like.",
                stacklevel=3,
            )


def load_begun(
    folder: RunFolder, members: Sequence[RunFolder], config: Mapping[str, Any]
) -> list[Checkpoint]:
    """last.ckpt of those members of a run that have one; each file must be one of this very run.

    Raises:
        CheckpointError: for a file of another run, or of another member.
    """
    begun = {n: Checkpoint.load(own.last) for n, own in enumerate(members) if own.last.is_file()}
    if 0 not in begun:
        raise CheckpointError(f"{members[0].last}: no such file. Restore it.")
    first = begun[0]
    for number, own in enumerate(members):
        for path in (own.last, own.best):
            if path.is_file():
                other = begun[number] if path == own.last else Checkpoint.load(path)
                _check_same_run(other, path, first, config, number)
    if len(members) > 1 and folder.best.is_file():
        _check_same_run(Checkpoint.load(folder.best), folder.best, first, config, None)
    return list(begun.values())


def _check_same_run(
    checkpoint: Checkpoint,
    path: Path,
    first: Checkpoint,
    config: Mapping[str, Any],
    member: int | None,
) -> None:
    """Refuses a checkpoint of another run, or of another member.

    Args:
        checkpoint: the checkpoint.
        path: its file, for messages.
        first: last.ckpt of the first member.
        config: the config of the run.
        member: which member it is to be; None for all of them.
    """
    specs = [FeatureSpec.from_dict(found.spec).to_dict() for found in (checkpoint, first)]
    splits = [Split.from_dict(found.split) for found in (checkpoint, first)]
    parts = [[split.part(name).tolist() for name in split.sizes()] for split in splits]
    stored = checkpoint.config.get("seed")
    number = checkpoint.progress.get("member", member)  # earlier versions did not write it
    if specs[0] != specs[1] or parts[0] != parts[1]:
        fault = "the data or the split of another run"
    elif stored != config["seed"]:
        fault = f"seed {stored}, and config.yaml seed {config['seed']}"
    elif member is not None and number != member:
        fault = f"the weights of member {number + 1 if isinstance(number, int) else number}"
    else:
        return
    raise CheckpointError(
        f"{path}: holds {fault}, so it is not the file that this run wrote. Restore it.",
        path=str(path),
    )


def check_model(model: Model, last: Checkpoint, path: Path) -> None:
    """Refuses weights that do not fit the model of config.yaml, which was changed then.

    Raises:
        CheckpointError: naming the first weight that differs.
    """
    check_weights(model, last.state_dict, path)
    own = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    theirs = {name: list(weight.shape) for name, weight in last.state_dict.items()}
    for name in [*own, *theirs]:
        if own.get(name) != theirs.get(name):
            there, here = (shapes.get(name, "absent") for shapes in (theirs, own))
            raise CheckpointError(
                f"{path}: the weight {name} is {there} in it, and {here} in the model of "
                "config.yaml. Restore config.yaml, or start a new run with init_from=RUN.",
                path=str(path),
            )
