"""PlannedRun: a checked config and the folder of its run, which begins or is continued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from graphfold.datasets.features.feature_sources import with_files
from graphfold.errors import ConfigError
from graphfold.options import is_address, refuse_address
from graphfold.training.config.overrides import refuse_sweeps
from graphfold.training.config.training_config import TrainingConfig, flatten
from graphfold.training.run.run_folder import RunFolder

#: In place of a run to continue: the run in the folder of this one, if that has begun.
AUTO_RESUME = "auto"

_PATHS_OF_DATA = ("data.path", "data.root", "data.cache_dir", "data.features_from")

#: What may change when a run is continued: none of it changes what an epoch computes.
RESUMABLE = ("trainer.max_epochs", *_PATHS_OF_DATA, "data.vectors")

#: The paths of a config that hold from any folder, where the run may be resumed and evaluated.
PATHS = (*_PATHS_OF_DATA, "model.encoder_from", "init_from")


@dataclass(frozen=True)
class PlannedRun:
    """A checked config and the folder of its run; `config.resume` is a run to continue.

    Args:
        config: the config; of a run to continue its own config, with the changes.
        folder: the folder of a new run: `hydra.run.dir`, or one in `hydra.sweep.dir`.
        changes: dotted key -> value that differs from the config of the run to continue.
        has_time: whether the folder is named by the time of the start.
        packages: third-party packages that the words of the user name, and the run to continue.
    """

    config: TrainingConfig
    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)
    has_time: bool = False
    packages: Sequence[str] = ()


def continued_run(overrides: Sequence[Override]) -> PlannedRun | None:
    """The run of `resume=RUN` with its own config; None without this override.

    Raises:
        ConfigError: if others than `RESUMABLE` are to change, or a value cannot be used.
        CheckpointError: if RUN is no run folder.
    """
    values = {override.key_or_group: override.value() for override in overrides}
    run = values.pop("resume", None)
    if not isinstance(run, str) or run == AUTO_RESUME:
        return None
    refuse_sweeps(overrides)
    refuse_address(run, "resume")
    for key in values:
        if key not in RESUMABLE:
            raise ConfigError(
                f"resume takes no '{key}': a run is continued with its own config, but for "
                f"{', '.join(RESUMABLE)}. Start a new run to change something; init_from=RUN gives "
                "it the weights of another."
            )
    nested = OmegaConf.to_container(OmegaConf.create({"values": values}), resolve=True)
    changes = {
        key: absolute_paths(key, value, Path.cwd()) if key in PATHS else value
        for key, value in nested["values"].items()  # type: ignore[call-overload, index, union-attr]
    }
    stored = RunFolder(Path(run)).read_config()
    config = TrainingConfig.of(stored.changed({**changes, "resume": run}).mapping)
    return PlannedRun(config, Path(run), changes)


def begin_or_continue(run: PlannedRun, folder: Path | None = None) -> PlannedRun:
    """The plan of `resume=auto`: the run in a folder is continued if it has a last.ckpt.

    Processes of torchrun that look at different times see the same: none has written a last.ckpt
    before all of them train.

    Args:
        run: the plan; it is returned unchanged unless it has `resume=auto`.
        folder: the folder; None for that of the plan.

    Raises:
        ConfigError: if the run in the folder was begun with other settings, or each start has a
            folder of its own.
        CheckpointError: if its config cannot be read.
    """
    if run.config.resume != AUTO_RESUME:
        return run
    if folder is None and run.has_time:
        raise ConfigError(
            "resume=auto goes on in the folder of the run, but each start has another one, named "
            "by the time. Set hydra.run.dir=FOLDER."
        )
    folder = folder or run.folder
    config, files = run.config.changed({"resume": None}), RunFolder(folder)
    if not files.members(config.ensemble)[0].last.is_file():
        return replace(run, config=config, folder=folder)
    settings, before = (_fixed_settings(c) for c in (config, files.read_config()))
    differing = [key for key in {**settings, **before} if settings.get(key) != before.get(key)]
    if differing:
        raise ConfigError(
            f"{folder} holds a run with other settings: {', '.join(differing)}. Give those of the "
            f"run, or choose another hydra.run.dir; or continue it as it was by resume={folder}."
        )
    places = [(key, *key.split(".")) for key in RESUMABLE]
    changes = {key: config.mapping[section].get(name) for key, section, name in places}
    from graphfold.training.config.trust import TRAINED, named_packages  # loads torch

    packages = named_packages(config.mapping, TRAINED)
    resumed = config.changed({"resume": str(folder)})
    return PlannedRun(resumed, folder, changes, packages=packages)


def absolute_paths(key: str, value: Any, start: Path) -> Any:
    """The value of one of `PATHS` as seen from any folder."""
    if key == "data.features_from":  # files beside names of columns
        return with_files(value, partial(absolute_path, start=start))
    return absolute_path(value, start)


def absolute_path(value: Any, start: Path) -> Any:
    """A path, or each path of a list or mapping, as seen from any folder."""
    if isinstance(value, dict):
        return {part: absolute_path(path, start) for part, path in value.items()}
    if isinstance(value, list):
        return [absolute_path(path, start) for path in value]
    if not isinstance(value, str) or value == "???" or is_address(value):  # refused later
        return value
    return str(start / Path(value).expanduser())


def _fixed_settings(config: TrainingConfig) -> dict[str, Any]:
    """Dotted key -> value of the settings that a continued run may not change.

    The length of a schedule that is the number of epochs may change with it.
    """
    may_change = tuple(f"{key}." for key in ("resume", *RESUMABLE))
    fixed = {k: v for k, v in flatten(config.mapping) if not f"{k}.".startswith(may_change)}
    for name in ("T_max", "total_steps"):
        if fixed.get(f"lr_scheduler.{name}") == config.trainer.max_epochs:
            del fixed[f"lr_scheduler.{name}"]
    return fixed
