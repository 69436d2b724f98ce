"""From overrides to one checked config, which Hydra composes once."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.options import refuse_address
from graphfold.training.config.folder import config_folder, register_resolvers
from graphfold.training.config.overrides import (
    first_value,
    in_hydras_grammar,
    is_null_experiment,
    parse_overrides,
)
from graphfold.training.config.planned_run import (
    PATHS,
    PlannedRun,
    absolute_paths,
    continued_run,
)
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.wrong_overrides import Groups, explain

Result = TypeVar("Result")

#: What `graphfold train` runs when no override chooses data, a model or an experiment.
DEFAULT_EXPERIMENT = "listops_tree_lstm"

#: The config files that a command starts from.
TRAIN, TUNE = "train", "tune"

#: The settings of Hydra itself that have an effect where it does not start the run.
READ_OF_HYDRA = ("hydra.run.dir", "hydra.sweep.dir", "hydra.searchpath", "hydra.job.name")


@dataclass(frozen=True)
class Sources:
    """Places of config files.

    Args:
        config_dir: a further folder of config files.
        primary: the config file that everything starts from.
    """

    config_dir: Path | None = None
    primary: str = TRAIN

    def folders(self) -> list[Path]:
        """The folders that are searched in this order, one or two; the first has the primary file.

        Raises:
            ConfigError: for a folder that does not exist.
        """
        folder = self.config_dir
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder. Give --config-dir a folder.")
        folders = [config_folder(), *([folder] if folder else [])]
        folders.sort(key=lambda folder: not (folder / f"{self.primary}.yaml").is_file())
        return [folder.absolute() for folder in folders]


def compose(
    overrides: Sequence[str], config_dir: Path | None = None, primary: str = TRAIN
) -> PlannedRun:
    """The checked config that `overrides` describe, and the folder of its run.

    Args:
        overrides: in Hydra's grammar.
        config_dir: a further folder of config files, searched after graphfold's own.
        primary: the config file that it starts from.

    Raises:
        ConfigError: an override that cannot be read, an unknown key, group or option, a value
            that is missing or of the wrong type; the message suggests the likely spelling.
    """
    parsed = parse_overrides(overrides)
    _refuse_what_is_not_read(parsed)
    run = continued_run(parsed)
    if run is not None:
        return run
    whole = compose_whole(overrides, Sources(config_dir, primary))
    with resolving(whole):
        return plan(_part(whole, "job"), whole.hydra, Path(whole.hydra.run.dir))


def compose_whole(overrides: Sequence[str], sources: Sources) -> DictConfig:
    """The config of some overrides with its hydra node, as Hydra composes it."""

    def start(_: Any, words: list[str]) -> DictConfig:
        return hydra.compose(sources.primary, words, return_hydra_config=True)

    return start_hydra(start, overrides, sources)


@contextmanager
def hydra_app(sources: Sources) -> Iterator[Any]:
    """Hydra over the config files: the object whose `run` and `multirun` `hydra.main` calls.

    `hydra.main` itself would read the arguments of the process. The root logger, which Hydra sets
    up for a job, is restored.
    """
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    folder = str(sources.folders()[0])
    with hydra.initialize_config_dir(folder, job_name="train", version_base="1.3"):
        try:
            yield GlobalHydra.instance().hydra
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers


def start_hydra(
    start: Callable[[Any, list[str]], Result], overrides: Sequence[str], sources: Sources
) -> Result:
    """Calls a function that makes Hydra compose the config of some overrides.

    Options of the adapter and of the model's class that no config file names need no +. For them
    alone Hydra composes twice: it finds them when it has read the config files.

    Args:
        start: is called with Hydra, see `hydra_app`, and the overrides for it.
        overrides: as typed.
        sources: the places of config files.

    Raises:
        ConfigError: that explains an error of Hydra or OmegaConf.
    """
    parsed = parse_overrides(overrides)
    for override in parsed:  # Hydra makes the folder before anything else
        if override.key_or_group in ("hydra.run.dir", "hydra.sweep.dir"):
            refuse_address(override.value(), override.key_or_group)
    further = sources.folders()[1:]

    def compose_choices(choices: Sequence[Override]) -> DictConfig:
        words = _hydra_words(choices, further)
        return hydra.compose(sources.primary, words, return_hydra_config=True)

    with hydra_app(sources) as app, readable():
        try:
            with readable():
                return start(app, _hydra_words(parsed, further))
        except ConfigError:
            options = explain(parsed, Groups(app.config_loader, further), compose_choices)
            if not options:
                raise
        return start(app, _hydra_words(parsed, further, options))


def _hydra_words(
    overrides: Sequence[Override], further: Sequence[Path], added: Sequence[str] = ()
) -> list[str]:
    """The overrides for Hydra: with the default experiment where they choose nothing.

    Args:
        overrides: as typed.
        further: folders of config files beside the first one.
        added: keys that need a +.
    """
    words, paths = [], [f"file://{folder}" for folder in further]
    for override in overrides:
        value = override.value()
        if override.key_or_group == "hydra.searchpath" and isinstance(value, list):
            paths = [*map(str, value), *paths]
        elif not is_null_experiment(override):
            sign = "+" if override.key_or_group in added else ""
            words.append(f"{sign}{override.input_line}")
    if not {override.key_or_group for override in overrides} & {"experiment", "data", "model"}:
        words.insert(0, f"experiment={DEFAULT_EXPERIMENT}")
    return [*words, *([f"hydra.searchpath={in_hydras_grammar(paths)}"] if paths else [])]


def plan(job: DictConfig, hydra_config: DictConfig, folder: Path) -> PlannedRun:
    """A new run of a config that Hydra composed; the config is resolved and checked.

    Options of the data that the model needs are set, and paths hold from any folder.

    Args:
        job: the config without its hydra node.
        hydra_config: its hydra node; `${hydra:...}` resolves.
        folder: the folder of the run.

    Raises:
        ConfigError: naming every absent key, and every absent or wrong value.
    """
    _meet_needs(job, hydra_config)
    register_resolvers()  # a launcher's process has not looked for config files
    with readable():
        plain = OmegaConf.to_container(job, resolve=True)
    assert isinstance(plain, dict)
    optional = dict.fromkeys(("lr_scheduler", "callbacks", "logger"))  # may be deleted
    mapping = {**optional, **{str(key): value for key, value in plain.items()}}
    start = Path(hydra_config.runtime.cwd)  # with hydra.job.chdir no longer the current folder
    for key in PATHS:
        section, _, name = key.rpartition(".")
        node = mapping.get(section) if section else mapping
        if isinstance(node, dict) and name in node:
            node[name] = absolute_paths(key, node[name], start)
    has_time = "${now:" in str(OmegaConf.to_container(hydra_config.run))
    return PlannedRun(TrainingConfig.of(mapping), folder, has_time=has_time)


def _meet_needs(job: DictConfig, hydra_config: DictConfig) -> None:
    """Sets the options of the data that the model needs (`needs_data` of its config)."""
    model = job.get("model") or {}
    typed = [o.key_or_group for o in parse_overrides(task_overrides(hydra_config))]
    for name, value in (model.get("needs_data") or {}).items():
        key = f"data.{name}"
        chosen = OmegaConf.select(job, key)
        if key in typed and chosen != value:
            raise ConfigError(
                f"the model {hydra_config.runtime.choices.model} needs {key}={json.dumps(value)}, "
                f"not {json.dumps(chosen)}. Leave it out, or choose another model."
            )
        OmegaConf.update(job, key, value, force_add=True)


def task_overrides(hydra_config: DictConfig) -> list[str]:
    """The overrides of the config, as they were typed: `${...}` in them stays."""
    words = OmegaConf.to_container(hydra_config.overrides.task, resolve=False)
    assert isinstance(words, list)
    return [str(word) for word in words]


def show_config(overrides: Sequence[str], sources: Sources, part: str, resolve: bool) -> str:
    """The config of a run as YAML, with the options of the data that the model needs.

    Args:
        overrides: of the run.
        sources: the places of config files.
        part: "job", "hydra" for the settings of Hydra, or "all".
        resolve: whether `${...}` is filled in.

    Raises:
        ConfigError: as `compose` does.
    """
    whole = compose_whole(overrides, sources)
    _meet_needs(whole, whole.hydra)
    with readable(), resolving(whole), flag_override(whole.hydra, "readonly", False):
        if resolve:
            OmegaConf.resolve(whole)
        return OmegaConf.to_yaml(_part(whole, part))


def split_sweeping(
    overrides: Sequence[str], sources: Sources = Sources()
) -> tuple[list[str], list[Override]]:
    """The overrides with one value, as typed, and those with several, parsed."""
    parsed = _parse_sweep(overrides, sources)
    single = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    return single, [override for override in parsed if override.is_sweep_override()]


def sweep_words(overrides: Sequence[str], sources: Sources) -> tuple[Path, list[str]]:
    """The folder of a sweep, and its overrides with the folder: the time in its name is now.

    The config of the first run is composed, so that faults are explained before Hydra begins.

    Raises:
        ConfigError: as `compose` does, and for a run to resume.
    """
    parsed = _parse_sweep(overrides, sources)
    if any(override.key_or_group == "resume" for override in parsed):
        raise ConfigError("-m starts new runs. Resume each run by itself.")
    first = [first_value(override) for override in parsed if not override.is_interval_sweep()]
    whole = compose_whole(first, sources)
    with resolving(whole):
        folder = Path(whole.hydra.sweep.dir)
    composed = parse_overrides(task_overrides(whole.hydra))
    typed = [override.key_or_group for override in parsed if override.is_add()]
    added = {override.key_or_group for override in composed if override.is_add()} - {*typed}
    words = _hydra_words(parsed, sources.folders()[1:], [*added])
    return folder, [
        *(word for word in words if word != "hydra.mode=MULTIRUN"),
        "hydra.mode=MULTIRUN",  # as hydra.main adds it
        f"hydra.sweep.dir={in_hydras_grammar(folder)}",
    ]


def _parse_sweep(overrides: Sequence[str], sources: Sources) -> list[Override]:
    """The overrides of a sweep, parsed; `glob(*)` in them chooses from the config files."""
    with hydra_app(sources) as app:
        return parse_overrides(overrides, app.config_loader)


@contextmanager
def readable() -> Iterator[None]:
    """Turns errors of Hydra and OmegaConf within into a `ConfigError` of one line."""
    try:
        yield
    except GraphfoldError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause = error if str(error).strip() else error.__cause__
        line = str(cause).strip().partition("\n")[0].rstrip(".")
        line = line.removeprefix("ValueError raised while resolving interpolation: ")
        key = getattr(cause, "full_key", None)
        place = f"{key}: " if key else ""
        raise ConfigError(f"{place}{line}. See graphfold train --cfg job.") from error


@contextmanager
def resolving(whole: DictConfig) -> Iterator[None]:
    """Within, ${hydra:...} resolves."""
    HydraConfig.instance().set_config(whole)
    try:
        yield
    finally:
        HydraConfig.instance().cfg = None


def _part(whole: DictConfig, part: str) -> DictConfig:
    """The config of the job, "hydra" for the settings of Hydra, or "all"."""
    if part == "all":
        return whole
    keys = [str(key) for key in whole if (key == "hydra") == (part == "hydra")]
    with flag_override(whole, ["struct", "readonly"], [False, False]):
        return OmegaConf.masked_copy(whole, keys)


def _refuse_what_is_not_read(overrides: Sequence[Override]) -> None:
    """Raises ConfigError for a setting of Hydra's own that nothing reads outside of train."""
    for override in overrides:
        key = override.key_or_group
        if re.match(r"hydra\b", key) and key not in READ_OF_HYDRA:
            raise ConfigError(
                f"'{override.input_line}' has no effect: only graphfold train is started by Hydra. "
                f"Of its settings there are {', '.join(READ_OF_HYDRA)}. Leave it out."
            )
