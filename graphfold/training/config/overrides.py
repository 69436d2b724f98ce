"""Hydra overrides: read, and checked for unknown groups, options and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.errors import ConfigError, GraphfoldError, did_you_mean
from graphfold.options import parameters
from graphfold.registry import ADAPTERS

_HOW = (
    "Write KEY=VALUE, and quote a value with a comma, blank or bracket, and all of it in a shell: "
    "\"data.target_columns=['a, b','c (d)']\"."
)

#: Options that name columns which are inputs or targets of a model.
NAMED_BY_MODEL = (
    *("extra_columns", "target_columns", "atom_target_columns", "bond_target_columns"),
)

#: Text that Hydra reads as it is, but for what it does not read as text.
_WORD, _NO_STRINGS = re.compile(r"[A-Za-z_][A-Za-z0-9_/]*"), ("true", "false", "null", "nan", "inf")

#: The config groups of named parts, each with the file that has none. Of these groups several
#: files may be joined: callbacks=[average,early_stopping].
WITHOUT_PARTS = {"callbacks": "default", "logger": "none"}


def parse_overrides(words: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """The overrides in Hydra's grammar.

    Raises:
        ConfigError: naming the first that cannot be read.
    """
    parser = OverridesParser.create(config_loader=loader)
    return [_parse(parser, word) for word in words]


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """`--set KEY=VALUE` as a dict; the prefix `data.` may be left out."""
    settings = {}
    for override in parse_overrides(words):
        if override.is_add() or override.is_delete() or override.is_sweep_override():
            raise ConfigError(f"--set cannot read '{override.input_line}'. {_HOW}")
        settings[override.key_or_group.removeprefix("data.")] = override.value()
    return settings


@contextmanager
def in_words_of_set() -> Iterator[None]:
    """Errors within ask for --set KEY=VALUE in place of keys of the config."""
    try:
        yield
    except GraphfoldError as error:
        error.message = re.sub(r"\bSet data\.(\w+)(=[\w.-]*\w)?", _remedy_of_set, error.message)
        raise


def _remedy_of_set(match: re.Match[str]) -> str:
    """The remedy of an error, for a trained model: some names of columns are part of it."""
    if match[1] in NAMED_BY_MODEL:
        return "Rename the column in the file, for the model has its name"
    return f"Add --set {match[1]}{match[2] or '=VALUE'}"


def refuse_sweeps(overrides: Sequence[Override]) -> None:
    """Raises ConfigError for a comma list where one value is needed."""
    for override in overrides:
        if override.is_sweep_override():
            raise ConfigError(
                f"'{override.input_line}' gives several values. Add -m for one run of each, or "
                f"write a list as {override.key_or_group}=[a,b]."
            )


@dataclass(frozen=True)
class Groups:
    """The config groups and their options, graphfold's and the user's.

    Args:
        loader: Hydra's loader over graphfold's config files.
        further: other folders of config files.
    """

    loader: ConfigLoader
    further: Sequence[Path] = ()

    def names(self) -> list[str]:
        """The groups."""
        own = [path.name for path in self._glob("*") if path.is_dir()]
        return sorted({*self.loader.list_groups(""), *own})

    def options(self, group: str) -> list[str]:
        """The options of a group; none if there is no such group."""
        if "." in group:  # a key, of which Hydra finds out by reading its config files anew
            return []
        own = [path.stem for path in self._glob(f"{group}/*.yaml")]
        return sorted({*self.loader.get_group_options(group), *own})

    def _glob(self, pattern: str) -> list[Path]:
        return [path for folder in self.further for path in folder.glob(pattern)]


def is_nothing(override: Override) -> bool:
    """True if it is `experiment=null`."""
    return override.key_or_group == "experiment" and override.value() is None


def check_options(overrides: Sequence[Override], groups: Groups) -> None:
    """Raises ConfigError for a group option without a file."""
    for override in overrides:
        group, value = override.key_or_group, override.value()
        options = groups.options(group)
        if override.is_delete() and value is None:
            continue
        for choice in value if isinstance(value, list) and group in WITHOUT_PARTS else [value]:
            if choice not in options:
                raise ConfigError(
                    f"no {group} '{choice}'.{did_you_mean(str(choice), options)} There are: "
                    f"{', '.join(name for name in options if not name.startswith('_'))}.",
                    override=override.input_line,
                )


def check_keys(overrides: Sequence[Override], config: DictConfig, groups: Sequence[str]) -> None:
    """Raises ConfigError that names every override whose key `config` lacks, or cannot lose."""
    faults = []
    plain = OmegaConf.to_container(config)
    keys = list(dotted_keys(plain))
    for override in overrides:
        key = override.key_or_group
        above = key.rpartition(".")[0]
        if override.is_delete() and above and OmegaConf.is_list(OmegaConf.select(config, above)):
            faults.append(
                f"'{override.input_line}' takes a value out of a list. Write the whole list, "
                f"{above}=[...]."
            )
            continue
        if override.is_add() or override.is_force_add() or key in keys:
            continue
        options = _adapter_options(config) if key.startswith("data.") else []
        if key.startswith("model."):
            options = _model_options(plain)
        if key in options:
            continue
        hint = suggest_key(key, [*keys, *options], groups)
        faults.append(f"no key '{key}' in the config.{hint} A new key is given as +{key}=VALUE.")
    if faults:
        raise ConfigError("\n".join(faults))


def check_sections(overrides: Sequence[Override], config: DictConfig, groups: Groups) -> None:
    """Raises ConfigError that names every override with a plain value for a whole section.

    Such as callbacks.early_stopping=default: what is meant is a file of the config group.
    """
    faults = []
    sections = set(_sections(OmegaConf.to_container(config)))
    for override in overrides:
        key = override.key_or_group
        group, _, name = key.partition(".")
        is_part = group in WITHOUT_PARTS and name and "." not in name
        value = None if override.is_delete() else override.value()
        if value is None or isinstance(value, dict) or not (is_part or key in sections):
            continue
        options = [option for option in groups.options(group) if not option.startswith("_")]
        meant = [option for option in (name, str(value)) if option in options]
        remedy = f" There are: {', '.join(f'{group}={o}' for o in options)}." if options else ""
        faults.append(
            f"{key} is '{value}', but it is a section of the config, which has keys of its own."
            + (f" Write {group}={meant[0]}." if meant else remedy)
        )
    if faults:
        raise ConfigError("\n".join(faults))


def _sections(node: Any, prefix: str = "") -> Iterator[str]:
    """The dotted keys whose values are mappings."""
    if isinstance(node, dict):
        yield prefix
    items = node.items() if isinstance(node, dict) else enumerate(node or ())
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _sections(value, f"{prefix}.{key}".lstrip("."))


def adapter_name(data: Any) -> str:
    """The adapter that the config group `data` names, itself or by its corpus."""
    corpus, name = data.get("corpus"), data.get("adapter")
    return find_corpus(corpus).adapter.name if corpus else str(name)


def _adapter_options(config: DictConfig) -> list[str]:
    """The keys of the options of the adapter that a config names."""
    try:
        options = parameters(ADAPTERS.find(adapter_name(config.get("data") or {})))
    except GraphfoldError:  # it has its own message, when the data are looked for
        return []
    return [f"data.{option}" for option in options]


def _model_options(config: Any) -> list[str]:
    """The keys of the options of the class that a config names for its model."""
    from graphfold.training.config.build_model import FROM_DATA  # loads torch
    from graphfold.training.config.instantiate import find_target

    try:
        options = parameters(find_target((config.get("model") or {}).get("_target_"), "model"))
    except GraphfoldError:  # it has its own message, when the parts are tried
        return []
    return [f"model.{option}" for option in options if option not in FROM_DATA]


def suggest_key(key: str, keys: Sequence[str], groups: Sequence[str] = ()) -> str:
    """The sentence that suggests a key: one spelt alike, or one of that name elsewhere."""
    section, _, last = key.rpartition(".")
    elsewhere = [known for known in keys if known.rpartition(".")[2] == last]
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


def _parse(parser: OverridesParser, word: str) -> Override:
    try:
        (override,) = parser.parse_overrides([word])
    except HydraException as error:
        raise ConfigError(f"override '{word}' cannot be read. {_HOW}", override=word) from error
    if not override.key_or_group:
        raise ConfigError(f"override '{word}' names no key. {_HOW}", override=word)
    return override


def in_hydras_grammar(value: Any) -> str:
    """A value as the right side of an override; text that is no word is quoted."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{in_hydras_grammar(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(in_hydras_grammar, value)) + "]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str | Path):
        is_word = _WORD.fullmatch(str(value)) and str(value).casefold() not in _NO_STRINGS
        return str(value) if is_word else _quoted(str(value))
    raise ConfigError(
        f"an override is {type(value).__name__} {value!r}. Give a number, text, True or False, "
        "None, or a list or mapping of these."
    )


def _quoted(text: str) -> str:
    """In single quotes, which Hydra takes off again: before a quote it halves the backslashes."""
    body, backslashes = "", 0
    for character in text + "'":
        if character == "'":
            body += "\\" * backslashes  # as many again
            body += "\\'"
        else:
            body += character
        backslashes = backslashes + 1 if character == "\\" else 0
    return f"'{body[:-2]}'"
