"""From overrides to one checked config, by Hydra's compose interface."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
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
from graphfold.training.config.check_config import check_config, check_whole, flatten
from graphfold.training.config.folder import config_folder
from graphfold.training.config.from_lightning import with_own_loop
from graphfold.training.config.overrides import (
    WITHOUT_PARTS,
    Groups,
    add_adapter_options,
    check_keys,
    check_options,
    check_sections,
    is_nothing,
    parse_overrides,
    refuse_sweeps,
)
from graphfold.training.config.stages import count_epochs, refuse_epochs

#: What `graphfold train` runs when no override chooses data, a model or an experiment.
DEFAULT_EXPERIMENT = "listops_tree_lstm"

#: Groups of which defaults.yaml chooses an option: by that of another group, and for all others.
FITTING = (("model", "data", "binary_tree_lstm"), ("callbacks", "model", "default"))

#: The config files that a command starts from.
TRAIN, TUNE = "train", "tune"

#: The settings of Hydra itself that are read.
READ_OF_HYDRA = ("hydra.run.dir", "hydra.sweep.dir", "hydra.searchpath", "hydra.job.name")

#: What may change when a run is continued: none of it changes what an epoch computes.
RESUMABLE = (
    *("trainer.max_epochs", "data.path", "data.root", "data.cache_dir"),
    *("data.vectors", "data.encoder"),
)


@dataclass(frozen=True)
class Composed:
    """A checked config, and where Hydra puts the run."""

    config: dict[str, Any]  # resolved: plain values, nothing left to fill in
    folder: Path  # hydra.run.dir
    sweep_folder: Path  # hydra.sweep.dir, for -m
    changes: dict[str, Any] = field(default_factory=dict)  # to the config of a resumed run


def compose(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    primary: str = TRAIN,
    trusted: Collection[str] | None = None,
) -> Composed:
    """The config that `overrides` describe, checked whole.

    Args:
        overrides: in Hydra's grammar.
        config_dir: a further folder of config files, searched after graphfold's own.
        primary: the config file that it starts from.
        trusted: the packages that the config may name, if the words come out of a folder that may
            be anybody's; None if the user typed them.

    Raises:
        ConfigError: an override that cannot be read, an unknown key, group or option, a value
            that is missing or of the wrong type; the message suggests the likely spelling.
        CheckpointError: if the config names code that is not trusted; nothing was imported.
    """
    with _readable_errors():
        whole = _compose(overrides, config_dir, primary, trusted)
        with _resolving(whole):
            plain = OmegaConf.to_container(_job(whole), resolve=True, throw_on_missing=False)
            folder, sweep_folder = Path(whole.hydra.run.dir), Path(whole.hydra.sweep.dir)
    assert isinstance(plain, dict)
    optional = dict.fromkeys(("lr_scheduler", "callbacks", "logger"))  # may be deleted
    config = with_own_loop({**optional, **{str(key): value for key, value in plain.items()}})
    check_config(config)
    check_whole(config)
    if trusted is not None:
        config["data"]["cache_dir"] = None  # a stranger does not say where files are written
        _refuse_untrusted(config, trusted)
    config["data"] = _with_absolute_paths(config["data"])
    for node, key in ((config, "init_from"), (config["model"], "encoder_from")):
        if node.get(key) is not None:
            node[key] = str(Path(node[key]).expanduser().absolute())
    if config["init_from"] is not None and config["model"].get("encoder_from") is not None:
        raise ConfigError(
            "init_from and model.encoder_from both give the weights of the encoder. Leave one out."
        )
    changes = {} if config["resume"] is None else _changes(overrides, config)
    return Composed(config, folder, sweep_folder, changes)


def show_config(overrides: Sequence[str], config_dir: Path | None, part: str, resolve: bool) -> str:
    """The composed config as YAML; `part` is job, hydra or all."""
    with _readable_errors():
        whole = _compose(overrides, config_dir)
        shown = {"job": _job(whole), "hydra": whole.hydra, "all": whole}[part]
        # Hydra's own node has values that only its own command line fills in.
        with _resolving(whole):
            return OmegaConf.to_yaml(shown, resolve=resolve and part == "job").rstrip()


def split_sweeping(
    overrides: Sequence[str], config_dir: Path | None = None
) -> tuple[list[str], list[Override]]:
    """The overrides with one value, as given, and those with several, parsed."""
    with _loader(config_dir) as (loader, _), _readable_errors():
        parsed = parse_overrides(overrides, loader)
    single = [word for word, o in zip(overrides, parsed, strict=True) if not o.is_sweep_override()]
    return single, [override for override in parsed if override.is_sweep_override()]


def as_experiment(
    overrides: Sequence[str],
    config_dir: Path | None = None,
    trusted: Collection[str] | None = None,
) -> dict[str, Any]:
    """The config of some overrides as an experiment: options of groups, and what differs from them.

    Values that others decide stay so (`${seed}`). The arguments are those of `compose`.
    """
    with _readable_errors():
        whole = _compose(overrides, config_dir, TRAIN, trusted)
        chosen = {
            group: option
            for group, option in whole.hydra.runtime.choices.items()
            if "/" not in group and group != "experiment" and option is not None
        }
        # Hydra does not tell which files were joined; what they hold are differences to no part.
        chosen = {**WITHOUT_PARTS, **chosen}
        words = [f"{group}={option}" for group, option in chosen.items()]
        own, plain = (
            OmegaConf.to_container(_job(config), resolve=False)
            for config in (whole, _compose(words, config_dir, TRAIN, trusted))
        )
    defaults = [{f"override /{group}": option} for group, option in chosen.items()]
    return {"defaults": defaults, **_differences(own, plain)}


def _differences(own: Any, plain: Any) -> dict[str, Any]:
    """The part of a nested config that another one lacks or has another value for."""
    found = {}
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(plain.get(key), dict):
            if part := _differences(value, plain[key]):
                found[key] = part
        elif key not in plain or plain[key] != value:
            found[key] = value
    return found


def split_sweep(overrides: Sequence[str], config_dir: Path | None = None) -> list[list[str]]:
    """The overrides of every run of a sweep, in Hydra's order."""
    with _loader(config_dir) as (loader, _), _readable_errors():
        values = {o.key_or_group: _values(o) for o in parse_overrides(overrides, loader)}
        return [list(run) for run in itertools.product(*values.values())]


def _values(override: Override) -> list[str]:
    """An override with each of its values, one after another."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise ConfigError(
            f"'{override.input_line}' has no list of values to run. Write {key}=a,b, or search the "
            "range with graphfold tune."
        )
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _compose(
    overrides: Sequence[str],
    config_dir: Path | None,
    primary: str = TRAIN,
    trusted: Collection[str] | None = None,
) -> DictConfig:
    """The config with its hydra node."""
    with _loader(config_dir) as (loader, always):
        groups = Groups(loader, config_dir)
        parsed = parse_overrides(overrides, loader)
        if trusted is not None:
            _refuse_settings_of_hydra(parsed)
        refuse_sweeps(parsed)
        chosen = [override for override in parsed if groups.options(override.key_or_group)]
        always = always + _default_experiment(chosen)
        # Hydra cannot be told to take no experiment, but that is what it does by itself.
        parsed, chosen = ([o for o in part if not is_nothing(o)] for part in (parsed, chosen))
        check_options(chosen, groups)
        always = always + _fitting(loader, chosen, [primary, *always])
        values = [override for override in parsed if override not in chosen]
        base = _load(loader, [*_lines(chosen), *always], primary)
        if trusted is not None:  # the options of an adapter are read from its class
            _refuse_untrusted({"data": base.get("data") or {}}, trusted)
        values = add_adapter_options(values, base)
        check_keys(values, base, groups.names())
        check_sections(values, base, groups)
        whole = base
        if values:
            whole = _load(loader, [*_lines([*chosen, *values]), *always], primary)
    _refuse_what_is_not_read(parsed)
    typed = [override.key_or_group for override in values]
    _meet_needs(whole, typed)
    _count_epochs(whole, typed)
    return whole


def _meet_needs(whole: DictConfig, typed: Sequence[str]) -> None:
    """Sets the options of the data that the model needs, as its config says (`needs_data`).

    Those in `data_defaults` are set unless they are given: by the user, or by the config of the
    data or of the experiment.
    """
    for name, value in (whole.model.get("needs_data") or {}).items():
        key = f"data.{name}"
        given = OmegaConf.select(whole, key)
        if key in typed and given != value:
            raise ConfigError(
                f"the model {whole.hydra.runtime.choices.model} needs {key}={json.dumps(value)}, "
                f"not {json.dumps(given)}. Leave it out, or choose another model."
            )
        OmegaConf.update(whole, key, value, force_add=True)
    for name, value in (whole.model.get("data_defaults") or {}).items():
        key = f"data.{name}"
        if key not in typed and OmegaConf.select(whole, key) is None:
            OmegaConf.update(whole, key, value, force_add=True)


def _count_epochs(whole: DictConfig, typed: Sequence[str]) -> None:
    """Sets trainer.max_epochs to the epochs of the stages, where there are any."""
    total = count_epochs(OmegaConf.to_container(whole).get("stages"))  # type: ignore[union-attr]
    if total is None:
        return
    if "trainer.max_epochs" in typed:
        refuse_epochs(total, whole.trainer.max_epochs)
    whole.trainer.max_epochs = total


def _changes(overrides: Sequence[str], config: dict[str, Any]) -> dict[str, Any]:
    """The values that a resumed run is to have; raises ConfigError for others than `RESUMABLE`."""
    keys = [override.key_or_group for override in parse_overrides(overrides)]
    for key in keys:
        if key not in ("resume", *RESUMABLE):
            raise ConfigError(
                f"resume takes no '{key}': a run is continued with its own config, but for "
                f"{', '.join(RESUMABLE)}. Start a new run to change something; init_from=RUN gives "
                "it the weights of another."
            )
    values = dict(flatten(config))
    return {key: values[key] for key in keys if key != "resume"}


@contextmanager
def _resolving(whole: DictConfig) -> Iterator[None]:
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
                f"'{override.input_line}' has no effect: runs are started by graphfold, one after "
                f"another, and not by Hydra. Of its settings there are {', '.join(READ_OF_HYDRA)}. "
                "Leave it out."
            )


def _refuse_untrusted(config: Mapping[str, Any], trusted: Collection[str]) -> None:
    from graphfold.training.config.trust import TRAINED, refuse_untrusted  # loads torch

    refuse_untrusted(config, trusted, TRAINED)


def _refuse_settings_of_hydra(overrides: Sequence[Override]) -> None:
    """Refuses settings of Hydra itself: its search path imports the packages in it."""
    for override in overrides:
        if re.match(r"hydra\b", override.key_or_group):
            raise ConfigError(
                f"'{override.input_line}' sets Hydra itself, which a stored search may not. Take "
                "it out of tune.yaml."
            )


def _default_experiment(chosen: Sequence[Override]) -> list[str]:
    if any(override.key_or_group in ("experiment", "data", "model") for override in chosen):
        return []
    return [f"experiment={DEFAULT_EXPERIMENT}"]


def _fitting(loader: ConfigLoader, chosen: Sequence[Override], base: list[str]) -> list[str]:
    """The model of the data and the callbacks of the model, where none is chosen.

    Args:
        loader: Hydra's.
        chosen: the groups that the user chooses.
        base: the primary config file, and overrides that choose groups for the user.
    """
    primary, *always = base
    lines = [*_lines(chosen), *always]
    choices = dict(
        loader.compute_defaults_list(primary, lines, RunMode.RUN).overrides.known_choices
    )
    table = yaml.safe_load((config_folder() / "defaults.yaml").read_text(encoding="utf-8"))
    typed = {override.key_or_group for override in chosen}
    words = []
    for group, by, otherwise in FITTING:
        if choices.get(group) is None and group not in typed:
            choices[group] = table[group].get(choices.get(by), otherwise)
            words.append(f"{group}={choices[group]}")
    return words


def _lines(overrides: Sequence[Override]) -> list[str]:
    return [override.input_line or "" for override in overrides]


def _load(loader: ConfigLoader, overrides: list[str], primary: str) -> DictConfig:
    return loader.load_configuration(primary, overrides, run_mode=RunMode.RUN, from_shell=False)


def _job(whole: DictConfig) -> DictConfig:
    """The config without its hydra node."""
    with flag_override(whole, ["struct", "readonly"], [False, False]):
        return OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])


def _with_absolute_paths(data: dict[str, Any]) -> dict[str, Any]:
    """So that a run can be resumed and evaluated from any folder."""

    def absolute(value: Any) -> Any:
        if isinstance(value, dict):
            return {part: absolute(path) for part, path in value.items()}
        if isinstance(value, list):
            return [absolute(path) for path in value]
        return str(Path(value).expanduser().absolute()) if isinstance(value, str) else value

    paths: dict[str, Any] = {key: data[key] for key in ("path", "root", "cache_dir") if key in data}
    return {**data, **absolute(paths)}


@contextmanager
def _loader(config_dir: Path | None) -> Iterator[tuple[ConfigLoader, list[str]]]:
    """Hydra's loader over our folder, and the override that adds the user's."""
    if config_dir is not None and not config_dir.is_dir():
        raise ConfigError(f"{config_dir}: no such folder. Give --config-dir a folder.")
    further = []
    if config_dir is not None:
        place = str(config_dir.resolve()).replace("\\", "\\\\").replace("'", "\\'")
        further = [f"hydra.searchpath=['file://{place}']"]
    with initialize_config_dir(str(config_folder()), job_name="graphfold", version_base="1.3"):
        yield GlobalHydra.instance().config_loader(), further


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Turns what Hydra and OmegaConf raise into a `ConfigError` of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        line = str(error).strip().splitlines()[0].rstrip(".")
        line = line.removeprefix("ValueError raised while resolving interpolation: ")
        key = getattr(error, "full_key", None)
        place = f"{key}: " if key else ""
        raise ConfigError(f"{place}{line}. See graphfold train --cfg job.") from error
