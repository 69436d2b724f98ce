"""From overrides to one checked config, by Hydra's compose interface."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from graphfold.errors import ConfigError
from graphfold.options import refuse_address
from graphfold.training.config.folder import config_folder
from graphfold.training.config.overrides import (
    Groups,
    check_keys,
    check_options,
    check_sections,
    in_hydras_grammar,
    is_nothing,
    parse_overrides,
    refuse_sweeps,
)
from graphfold.training.config.training_config import TrainingConfig, flatten
from graphfold.training.run.run_folder import RunFolder

#: What `graphfold train` runs when no override chooses data, a model or an experiment.
DEFAULT_EXPERIMENT = "listops_tree_lstm"

#: The config files that a command starts from.
TRAIN, TUNE = "train", "tune"

#: The settings of Hydra itself that are read where runs are not started by it.
READ_OF_HYDRA = ("hydra.run.dir", "hydra.sweep.dir", "hydra.searchpath", "hydra.job.name")

#: In place of a run to continue: the folder of the run itself, if there is something in it.
AUTO_RESUME = "auto"

#: What may change when a run is continued: none of it changes what an epoch computes.
RESUMABLE = (*("trainer.max_epochs", "data.path", "data.root", "data.cache_dir", "data.vectors"),)


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
        """The folders in the order in which files are looked for, one or two.

        The one that has the primary file comes first.

        Raises:
            ConfigError: for a folder that does not exist.
        """
        folder = self.config_dir
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder. Give --config-dir a folder.")
        main = config_folder()  # called in any case: it registers what other folders use, too
        folders = [main, *([folder] if folder else [])]
        folders.sort(key=lambda folder: not (folder / f"{self.primary}.yaml").is_file())
        return [folder.absolute() for folder in folders]


@dataclass(frozen=True)
class Composed:
    """A checked config, and where Hydra puts the run."""

    config: TrainingConfig
    folder: Path  # hydra.run.dir, or of a run of a sweep its folder in hydra.sweep.dir
    changes: dict[str, Any] = field(default_factory=dict)  # to the config of a resumed run
    has_time: bool = False  # whether the time of the start is part of the folder's name
    packages: Sequence[str] = ()  # that a resumed run names, and its user, too


def compose(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    primary: str = TRAIN,
) -> Composed:
    """The config that `overrides` describe, checked whole.

    Args:
        overrides: in Hydra's grammar.
        config_dir: a further folder of config files, searched after graphfold's own.
        primary: the config file that it starts from.

    Raises:
        ConfigError: an override that cannot be read, an unknown key, group or option, a value
            that is missing or of the wrong type; the message suggests the likely spelling.
    """
    _refuse_what_is_not_read(parse_overrides(overrides))
    return compose_job(overrides, Sources(config_dir, primary=primary))


def compose_job(overrides: Sequence[str], sources: Sources) -> Composed:
    """As `compose`, of overrides among which any setting of Hydra may be."""
    with explained(overrides, sources):
        whole = load_whole(overrides, sources)
        with resolving(whole):
            folder = Path(whole.hydra.run.dir)
            return finish(_job(whole), whole.hydra, overrides, folder)


def finish(
    job: DictConfig,
    hydra: DictConfig,
    overrides: Sequence[str],
    folder: Path,
) -> Composed:
    """A config that Hydra composed, with what follows from it, resolved and checked.

    What follows from it: options of the data that the model needs, paths that hold from any folder.

    Args:
        job: the config without its hydra node.
        hydra: its hydra node; `${hydra:...}` resolves.
        overrides: as the user typed them.
        folder: where the run goes.

    Raises:
        ConfigError: as `compose` does.
    """
    refuse_address(folder, "hydra.run.dir")
    _meet_needs(job, hydra)
    plain = OmegaConf.to_container(job, resolve=True, throw_on_missing=False)
    assert isinstance(plain, dict)
    optional = dict.fromkeys(("lr_scheduler", "callbacks", "logger"))  # may be deleted
    mapping = {**optional, **{str(key): value for key, value in plain.items()}}
    config = TrainingConfig.of(mapping)
    start = Path(hydra.runtime.cwd)  # with hydra.job.chdir it is no longer the current folder
    places = {f"data.{key}": config.data.get(key) for key in ("path", "root", "cache_dir")}
    places |= {"init_from": config.init_from}
    places |= {"model.encoder_from": config.model.get("encoder_from")}
    places = {key: _absolute(path, start) for key, path in places.items() if path is not None}
    config = config.changed(places)
    has_time = "${now:" in str(OmegaConf.to_container(hydra.run))
    is_new = config.resume in (None, AUTO_RESUME)
    changes = {} if is_new else _changes(overrides, config.mapping)
    return Composed(config, folder, changes, has_time)


def go_on_or_begin(composed: Composed, folder: Path | None = None) -> Composed:
    """The config of `resume=auto` in a folder: its run is continued if it has a last.ckpt.

    Processes of torchrun that look at different times see the same: none has written a last.ckpt
    before all of them train.

    Args:
        composed: the config; it is returned as it is unless it has `resume=auto`.
        folder: where the run goes; None for the folder of the config.

    Raises:
        ConfigError: if the run in the folder was begun with other settings, or each start has a
            folder of its own.
        CheckpointError: if its config cannot be read.
    """
    if composed.config.resume != AUTO_RESUME:
        return composed
    if folder is None and composed.has_time:
        raise ConfigError(
            "resume=auto goes on in the folder of the run, but each start has another one, named "
            "by the time. Set hydra.run.dir=FOLDER."
        )
    folder = folder or composed.folder
    config, run = composed.config.changed({"resume": None}), RunFolder(folder)
    if not run.members(config.ensemble)[0].last.is_file():
        return replace(composed, config=config, folder=folder)
    settings, before = (_settings(c) for c in (config, run.read_config()))
    other = [key for key in {**settings, **before} if settings.get(key) != before.get(key)]
    if other:
        raise ConfigError(
            f"{folder} holds a run with other settings: {', '.join(other)}. Give those of the run, "
            f"or choose another hydra.run.dir; or continue it as it was by resume={folder}."
        )
    named = [(key, *key.split(".")) for key in RESUMABLE]
    changes = {key: config.mapping[part].get(name) for key, part, name in named}
    from graphfold.training.config.trust import TRAINED, named_packages  # loads torch

    packages = named_packages(config.mapping, TRAINED)
    resumed = config.changed({"resume": str(folder)})
    return Composed(resumed, folder, changes, packages=packages)


def _settings(config: TrainingConfig) -> dict[str, Any]:
    """Dotted key -> value of the settings that a continued run must have kept.

    The length of a schedule that is the number of epochs may change with it.
    """
    may_change = tuple(f"{key}." for key in ("resume", *RESUMABLE))
    kept = {k: v for k, v in flatten(config.mapping) if not f"{k}.".startswith(may_change)}
    for name in ("T_max", "total_steps"):
        if kept.get(f"lr_scheduler.{name}") == config.trainer.max_epochs:
            del kept[f"lr_scheduler.{name}"]
    return kept


def load_whole(overrides: Sequence[str], sources: Sources) -> DictConfig:
    """The config of some overrides with its hydra node, as Hydra composes it.

    Raises:
        ConfigError: for an override that cannot be read.
        HydraException, OmegaConfBaseException, ValueError: what Hydra and OmegaConf raise.
    """
    words = with_default_experiment(overrides)
    with _loader(sources) as (loader, further):
        return _load(loader, [*words, *further], sources.primary)


def with_default_experiment(overrides: Sequence[str]) -> list[str]:
    """The overrides for Hydra: with the default experiment where they choose nothing.

    Hydra cannot be told to take no experiment, but that is what it does by itself: experiment=null
    is left out.
    """
    parsed = parse_overrides(overrides)
    keys = {override.key_or_group for override in parsed}
    words = [o.input_line or "" for o in parsed if not is_nothing(o)]
    if not keys & {"experiment", "data", "model"}:
        words.insert(0, f"experiment={DEFAULT_EXPERIMENT}")
    return words


def show_config(overrides: Sequence[str], sources: Sources, part: str, resolve: bool) -> str:
    """The config of a run as YAML, with the values that follow from others.

    Args:
        overrides: of the run.
        sources: where config files are.
        part: "job", "hydra" for the settings of Hydra, or "all".
        resolve: whether `${...}` is filled in.

    Raises:
        ConfigError: as `compose` does.
    """
    with explained(overrides, sources):
        whole = load_whole(overrides, sources)
        _meet_needs(whole, whole.hydra)
        with resolving(whole), flag_override(whole.hydra, "readonly", False):
            if resolve:
                OmegaConf.resolve(whole)
            shown = {"job": _job(whole), "hydra": _part(whole, ["hydra"]), "all": whole}[part]
            return OmegaConf.to_yaml(shown)


@contextmanager
def explained(overrides: Sequence[str], sources: Sources) -> Iterator[None]:
    """Checks overrides, and turns what Hydra and OmegaConf raise within into a `ConfigError`.

    Raises:
        ConfigError: that names the first fault, with the likely spelling.
    """
    with readable():
        _check_overrides(overrides, sources)
        yield


@contextmanager
def readable() -> Iterator[None]:
    """Turns what Hydra and OmegaConf raise within into a `ConfigError` of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        cause = error if str(error).strip() else error.__cause__
        line = str(cause).strip().partition("\n")[0].rstrip(".")
        line = line.removeprefix("ValueError raised while resolving interpolation: ")
        key = getattr(cause, "full_key", None)
        place = f"{key}: " if key else ""
        raise ConfigError(f"{place}{line}. See graphfold train --cfg job.") from error


def _check_overrides(overrides: Sequence[str], sources: Sources) -> None:
    """Raises ConfigError for a group, an option or a key that does not exist."""
    with _loader(sources) as (loader, further):
        groups = Groups(loader, sources.folders()[1:])
        parsed = [o for o in parse_overrides(overrides, loader) if not is_nothing(o)]
        refuse_sweeps(parsed)
        for override in parsed:  # Hydra makes the folder before anything else
            if override.key_or_group in ("hydra.run.dir", "hydra.sweep.dir", "resume"):
                refuse_address(override.value(), override.key_or_group)
        chosen = [override for override in parsed if groups.options(override.key_or_group)]
        check_options(chosen, groups)
        values = [override for override in parsed if override not in chosen]
        if not values:
            return
        lines = [override.input_line or "" for override in chosen]
        words = with_default_experiment(lines)
        base = _load(loader, [*words, *further], sources.primary)
        check_keys(values, base, groups.names())
        check_sections(values, base, groups)


def split_sweeping(
    overrides: Sequence[str], sources: Sources = Sources()
) -> tuple[list[str], list[Override]]:
    """The overrides with one value, as given, and those with several, parsed."""
    with _loader(sources) as (loader, _):
        parsed = parse_overrides(overrides, loader)
    single = [word for word, o in zip(overrides, parsed, strict=True) if not o.is_sweep_override()]
    return single, [override for override in parsed if override.is_sweep_override()]


def sweep_folder(overrides: Sequence[str], sources: Sources) -> tuple[Path, list[str]]:
    """The folder of a sweep, and the overrides with it: the time in its name is now."""
    with _loader(sources) as (loader, _):
        parsed = parse_overrides(overrides, loader)
    if any(override.key_or_group == "resume" for override in parsed):
        raise ConfigError("-m starts new runs. Resume each run by itself.")
    first = [_first_value(override) for override in parsed if not override.is_interval_sweep()]
    with explained(first, sources):
        whole = load_whole(first, sources)
        with resolving(whole):
            folder = Path(whole.hydra.sweep.dir)
    return folder, [*overrides, f"hydra.sweep.dir={in_hydras_grammar(folder)}"]


def _first_value(override: Override) -> str:
    """An override with one value, the first of several."""
    if not override.is_sweep_override():
        return override.input_line or ""
    return f"{override.get_key_element()}={next(override.sweep_string_iterator())}"


def _meet_needs(job: DictConfig, hydra: DictConfig) -> None:
    """Sets the options of the data that the model needs, as its config says (`needs_data`)."""
    model, typed = job.get("model") or {}, _typed(hydra)
    for name, value in (model.get("needs_data") or {}).items():
        key = f"data.{name}"
        given = OmegaConf.select(job, key)
        if key in typed and given != value:
            raise ConfigError(
                f"the model {hydra.runtime.choices.model} needs {key}={json.dumps(value)}, "
                f"not {json.dumps(given)}. Leave it out, or choose another model."
            )
        OmegaConf.update(job, key, value, force_add=True)


def _typed(hydra: DictConfig) -> list[str]:
    """The keys that overrides set."""
    return [override.key_or_group for override in parse_overrides(task_overrides(hydra))]


def task_overrides(hydra: DictConfig) -> list[str]:
    """The overrides of the config, as they were typed: `${...}` in them stays."""
    words = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    assert isinstance(words, list)
    return [str(word) for word in words]


def _changes(overrides: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a resumed run is to have."""
    values = dict(flatten(config))
    return {key: values[key] for key in changed_keys(overrides)}


def changed_keys(overrides: Sequence[str]) -> list[str]:
    """The keys that a resumed run is to have other values for.

    Raises:
        ConfigError: for others than `RESUMABLE`.
    """
    keys = [override.key_or_group for override in parse_overrides(overrides)]
    for key in keys:
        if key not in ("resume", *RESUMABLE):
            raise ConfigError(
                f"resume takes no '{key}': a run is continued with its own config, but for "
                f"{', '.join(RESUMABLE)}. Start a new run to change something; init_from=RUN gives "
                "it the weights of another."
            )
    return [key for key in keys if key != "resume"]


@contextmanager
def resolving(whole: DictConfig) -> Iterator[None]:
    """Within, ${hydra:...} resolves."""
    HydraConfig.instance().set_config(whole)
    try:
        yield
    finally:
        HydraConfig.instance().cfg = None


def _refuse_what_is_not_read(overrides: Sequence[Override]) -> None:
    """Raises ConfigError for a setting of Hydra's own command line, which nothing here reads."""
    for override in overrides:
        key = override.key_or_group
        if re.match(r"hydra\b", key) and key not in READ_OF_HYDRA:
            raise ConfigError(
                f"'{override.input_line}' has no effect: only graphfold train is started by Hydra. "
                f"Of its settings there are {', '.join(READ_OF_HYDRA)}. Leave it out."
            )


def _load(loader: ConfigLoader, overrides: list[str], primary: str) -> DictConfig:
    return loader.load_configuration(primary, overrides, run_mode=RunMode.RUN, from_shell=False)


def _job(whole: DictConfig) -> DictConfig:
    """The config without its hydra node."""
    return _part(whole, [str(key) for key in whole if key != "hydra"])


def _part(whole: DictConfig, keys: list[str]) -> DictConfig:
    with flag_override(whole, ["struct", "readonly"], [False, False]):
        return OmegaConf.masked_copy(whole, keys)


def _absolute(value: Any, start: Path) -> Any:
    """Paths that hold from any folder, where the run may be resumed and evaluated."""
    if isinstance(value, dict):
        return {part: _absolute(path, start) for part, path in value.items()}
    if isinstance(value, list):
        return [_absolute(path, start) for path in value]
    return str(start / Path(value).expanduser()) if isinstance(value, str) else value


@contextmanager
def _loader(sources: Sources) -> Iterator[tuple[ConfigLoader, list[str]]]:
    """Hydra's loader over the first folder, and the override that adds the second one."""
    first, *more = map(str, sources.folders())
    paths = in_hydras_grammar([f"file://{folder}" for folder in more])
    with initialize_config_dir(first, job_name="train", version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        yield loader, [f"hydra.searchpath={paths}"] if more else []
