"""Explanations of overrides that Hydra refuses, with the likely spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.errors import ConfigError, GraphfoldError, did_you_mean
from graphfold.options import parameters
from graphfold.registry import ADAPTERS
from graphfold.training.config.overrides import refuse_sweeps


@dataclass(frozen=True)
class Groups:
    """The config groups and their options, graphfold's and the user's.

    Args:
        loader: Hydra's loader over the first folder of config files.
        further: other folders of config files.
    """

    loader: ConfigLoader
    further: Sequence[Path] = ()

    def names(self) -> list[str]:
        """The groups."""
        further = [path.name for path in self._glob("*") if path.is_dir()]
        return sorted({*self.loader.list_groups(""), *further})

    def options(self, group: str) -> list[str]:
        """The options of a group; empty for a key that is no group."""
        if "." in group:  # Hydra would read its config files again to find out
            return []
        further = [path.stem for path in self._glob(f"{group}/*.yaml")]
        return sorted({*self.loader.get_group_options(group), *further})

    def _glob(self, pattern: str) -> list[Path]:
        return [path for folder in self.further for path in folder.glob(pattern)]


def explain(
    overrides: Sequence[Override],
    groups: Groups,
    compose: Callable[[Sequence[Override]], DictConfig],
) -> list[str]:
    """The keys of overrides that Hydra takes only with a +, though they are options.

    An adapter, and the class of a model, have more options than a config file names.

    Args:
        overrides: as typed; Hydra could not compose them.
        groups: the config groups.
        compose: composes choices of options of groups.

    Raises:
        ConfigError: for several values, or an option or a key that does not exist.
    """
    refuse_sweeps(overrides)
    choices = [override for override in overrides if groups.options(override.key_or_group)]
    _check_options(choices, groups)
    values = [override for override in overrides if override not in choices]
    config = compose(choices)
    plain = OmegaConf.to_container(config)
    keys = [*dotted_keys(plain)]
    absent = [
        override.key_or_group
        for override in values
        if not override.is_add() and not override.is_force_add()
        if override.key_or_group not in keys
    ]
    options = [*_adapter_options(plain, absent), *_model_options(plain, absent)]
    faults = [
        f"no key '{key}' in the config.{suggest_key(key, [*keys, *options], groups.names())} A new "
        f"key is given as +{key}=VALUE."
        for key in absent
        if key not in options
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return absent


def _check_options(choices: Sequence[Override], groups: Groups) -> None:
    """Raises ConfigError for an option of a group that has no file."""
    for override in choices:
        group, value = override.key_or_group, override.value()
        options = groups.options(group)
        if value is None and (override.is_delete() or group == "experiment"):
            continue
        for choice in value if isinstance(value, list) else [value]:
            if choice not in options:
                raise ConfigError(
                    f"no {group} '{choice}'.{did_you_mean(str(choice), options)} There are: "
                    f"{', '.join(name for name in options if not name.startswith('_'))}.",
                    override=override.input_line,
                )


def adapter_name(data: Mapping[str, Any]) -> str:
    """The adapter that the config group `data` names, itself or by its corpus."""
    corpus, name = data.get("corpus"), data.get("adapter")
    return find_corpus(corpus).adapter.name if corpus else str(name)


def _adapter_options(config: Any, absent: Sequence[str]) -> list[str]:
    """The keys of the options of the adapter; empty unless a key of `data` is absent."""
    if not any(key.startswith("data.") for key in absent):
        return []
    try:
        options = parameters(ADAPTERS.find(adapter_name(config.get("data") or {})))
    except GraphfoldError:  # reported when the data are read
        return []
    return [f"data.{option}" for option in options]


def _model_options(config: Any, absent: Sequence[str]) -> list[str]:
    """The keys of the options of the model's class; empty unless a key of `model` is absent."""
    if not any(key.startswith("model.") for key in absent):
        return []
    from graphfold.training.config.build_model import FROM_DATA  # loads torch
    from graphfold.training.config.instantiate import find_target

    try:
        options = parameters(find_target((config.get("model") or {}).get("_target_"), "model"))
    except GraphfoldError:  # reported when the classes are checked
        return []
    return [f"model.{option}" for option in options if option not in FROM_DATA]


def suggest_key(key: str, keys: Sequence[str], groups: Sequence[str] = ()) -> str:
    """The sentence that suggests a key: one spelt alike, or one of that name elsewhere."""
    section, _, last = key.rpartition(".")
    elsewhere = [other for other in keys if other.rpartition(".")[2] == last]
    if elsewhere:
        return f" Did you mean '{elsewhere[0]}'?"
    hint = did_you_mean(key, [*keys, *groups])
    meant = hint.removeprefix(" Did you mean '").removesuffix("'?")
    if not section or meant.rpartition(".")[0] != section:
        return hint
    # The same section makes any two keys look alike: the names themselves have to.
    return hint if did_you_mean(last, [meant.rpartition(".")[2]]) else ""


def dotted_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a nested config, such as data.batch_size; inner keys and positions too."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield f"{prefix}{key}"
        yield from dotted_keys(value, f"{prefix}{key}.")
