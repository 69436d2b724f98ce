"""`graphfold tune`: a search over settings, trial by trial, that can be interrupted."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from graphfold.errors import ConfigError
from graphfold.files import refuse_links, write_text
from graphfold.options import read_section
from graphfold.studies.tune_folder import (
    CONTENTS,
    Search,
    TuneFolder,
    shared_address,
    without_password,
)
from graphfold.studies.tune_space import Dimension, read_space, space_of_sweeps
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import TUNE, Sources, as_experiment, compose, split_sweeping
from graphfold.training.config.overrides import in_hydras_grammar, parse_overrides
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import TRAINED, named_packages
from graphfold.training.process.launch import launch, leave_launch
from graphfold.training.run.run_folder import lock_folder

#: Overrides that are of the search itself, not of its trials.
_OWN = ("tune.", "tune=", "hydra.")


def tune_command(
    overrides: Sequence[str], config_dir: Path | None = None, trusted: Collection[str] = ()
) -> int:
    """`graphfold tune`: a new search, or with resume=RUN an old one continued.

    With a database that others use, too, this is one of the workers of a search. All that can be
    checked is checked before the first trial.

    Args:
        overrides: of the config; those with several values are what is searched.
        config_dir: a further folder of config files.
        trusted: packages that a continued search may name: its folder may be anybody's. The words
            of a new search are its user's own.

    Returns:
        0; 1 if it was interrupted, or no trial came to its end.

    Raises:
        ConfigError: if the config, the space or the folder cannot be used, or Optuna is missing.
        CheckpointError: if a continued search is damaged, or names code that is not trusted.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("graphfold tune needs Optuna. Install graphfold[tune].")
    launched = launch()
    leave_launch()  # each process is a worker, and trains alone
    vouched = _vouched(overrides, trusted)
    if vouched is None:
        folder, search = _new(overrides, config_dir)
    else:
        folder, search = _continued(overrides, config_dir)
    if launched is not None and launched.world_size > 1 and search.storage is None:
        raise ConfigError(
            f"{launched.launcher} has started {launched.world_size} workers, which share a search "
            "by its database. Set tune.storage."
        )
    space = read_space(search.space)
    config = _checked(search, space, vouched)
    folder.path.mkdir(parents=True, exist_ok=True)
    refuse_links(folder.path, CONTENTS)
    with lock_folder(folder.path) if search.storage is None else nullcontext():
        return _search(folder, search, space, config, vouched)


def _vouched(overrides: Sequence[str], trusted: Collection[str]) -> Collection[str] | None:
    """The packages that a search may name if it is continued; None for a new one."""
    keys = [override.key_or_group for override in parse_overrides(overrides)]
    return trusted if "resume" in keys else None


def _new(overrides: Sequence[str], config_dir: Path | None) -> tuple[TuneFolder, Search]:
    """A search as the overrides and the config group tune describe it."""
    single, sweeping = split_sweeping(overrides, Sources(config_dir))
    # A space may have keys that the file of the config group lacks.
    single = [f"++{word}" if word.startswith("tune.space") else word for word in single]
    composed = compose(single, config_dir, TUNE)
    given = composed.config.mapping["tune"]
    space = space_of_sweeps(sweeping) if sweeping else given["space"]
    read_space(space)
    folder = TuneFolder(composed.folder)
    storage = None if given["storage"] is None else shared_address(str(given["storage"]))
    if folder.search.exists() and (storage is None or folder.read_search().storage != storage):
        raise ConfigError(
            f"{folder.path} holds a search. Continue it with resume={folder.path}, or choose "
            "another hydra.run.dir."
        )
    kept = [word for word in single if not word.lstrip("+~").startswith(_OWN)]
    data = composed.config.settings
    places = {"path": data.path, "root": data.root, "cache_dir": data.cache_dir}
    kept += [f"data.{key}={in_hydras_grammar(place)}" for key, place in places.items() if place]
    search = {
        **given,
        "overrides": kept,
        "config_dir": None if config_dir is None else str(config_dir.absolute()),
        "space": space,
        "storage": storage,
        "seed": composed.config.seed,
        "monitor": "",
        "direction": "min",  # until the model is made
    }
    return folder, read_section(Search, search, "tune")


def _continued(overrides: Sequence[str], config_dir: Path | None) -> tuple[TuneFolder, Search]:
    """The search in a folder, with another number of trials if that is given."""
    if config_dir is not None:
        raise ConfigError(
            "resume takes no --config-dir: a search goes on with its own config files. Leave it "
            "out."
        )
    values = {override.key_or_group: override.value() for override in parse_overrides(overrides)}
    folder = TuneFolder(Path(str(values.pop("resume"))))
    search = folder.read_search()
    trials = values.pop("tune.trials", search.trials)
    if values:
        raise ConfigError(
            f"resume takes no '{next(iter(values))}': a search goes on with its own config, but "
            "for tune.trials. Start a new one to change something."
        )
    return folder, read_section(Search, {**asdict(search), "trials": trials}, "tune")


def _checked(
    search: Search, space: Sequence[Dimension], trusted: Collection[str] | None
) -> TrainingConfig:
    """The config of all trials; refuses one that cannot be trained, and values it cannot have."""
    extremes = [override for dimension in space for override in dimension.extremes()]
    configs = [
        compose([*search.overrides, *own], search.config_folder, trusted=trusted).config
        for own in ([], *([word] for word in extremes))
    ]
    if configs[0].trainer.devices > 1:
        raise ConfigError("tune trains in one process. Set trainer.devices=1.")
    for config in configs:
        check_parts(config)
    return configs[0]


def _search(
    folder: TuneFolder,
    search: Search,
    space: Sequence[Dimension],
    config: TrainingConfig,
    trusted: Collection[str] | None,
) -> int:
    from graphfold.studies.tune_study import Study, choose_monitor

    if not search.monitor:
        monitor, direction = choose_monitor(config)
        search = replace(search, monitor=monitor, direction=direction)
    study = Study(folder, search, space, trusted)
    folder.write_search(search)  # if its database can be used
    shared = ""
    if search.storage is not None:
        shared = f", study '{search.study}' of {without_password(search.storage)}"
    print(
        f"searching in {folder.path}: {search.trials} trials, {search.monitor}{shared}", flush=True
    )
    try:
        study.run()
    except KeyboardInterrupt:
        words = [f"resume={folder.path}"]
        words += [f"--trust {package}" for package in named_packages(config.mapping, TRAINED)]
        print(f"interrupted. Continue with: graphfold tune {' '.join(words)}", file=sys.stderr)
        return 1
    with folder.readable_study(search.storage):
        print(study.table())
        best = study.best_overrides()
        if best is None:
            print(f"no trial came to its end: see {folder.table}", file=sys.stderr)
            return 1
        study.draw()
    _write_best(folder, search, best, trusted)
    print(f"all trials: {folder.table}\nplot: {folder.plot}\nbest config: {folder.best}")
    print(f"train it: graphfold train --config-dir {folder.configs} experiment=best")
    return 0


def _write_best(
    folder: TuneFolder, search: Search, overrides: Sequence[str], trusted: Collection[str] | None
) -> None:
    """Writes the best config as an experiment, beside the user's own config files."""
    compose(overrides, search.config_folder, trusted=trusted)
    if search.config_dir is not None:
        shutil.copytree(search.config_dir, folder.configs, dirs_exist_ok=True, ignore=_all_but_yaml)
    folder.best.parent.mkdir(parents=True, exist_ok=True)
    content = yaml.safe_dump(
        as_experiment(overrides, search.config_folder, trusted), sort_keys=False, allow_unicode=True
    )
    command = f"graphfold train --config-dir {folder.configs.absolute()} experiment=best"
    note = f"The best of a search by {search.monitor}, in {folder.path.absolute()}."
    write_text(folder.best, f"# @package _global_\n# {note}\n# {command}\n{content}")


def _all_but_yaml(folder: str, names: Sequence[str]) -> list[str]:
    """The files of a folder that are no configs."""
    return [n for n in names if not n.endswith(".yaml") and os.path.isfile(os.path.join(folder, n))]
