"""Hydra's grammar of overrides: reading them, and writing values in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfold.errors import ConfigError, GraphfoldError

if TYPE_CHECKING:  # a prediction without --set does without Hydra, which takes a while to load
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override

_HOW = (
    "Write KEY=VALUE, and quote a value with a comma, blank or bracket, and all of it in a shell: "
    "\"data.target_columns=['a, b','c (d)']\"."
)

#: Options that name columns which are inputs or targets of a model.
NAMED_BY_MODEL = ("target_columns", "atom_target_columns", "bond_target_columns")

#: Text that needs no quotes, and text that Hydra takes for other values.
_WORD, _NO_STRINGS = re.compile(r"[A-Za-z_][A-Za-z0-9_/]*"), ("true", "false", "null", "nan", "inf")


def parse_overrides(words: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """The overrides in Hydra's grammar.

    Args:
        words: as typed.
        loader: of the config files, which `KEY=glob(*)` chooses from.

    Raises:
        ConfigError: naming the first that cannot be read.
    """
    if not words:
        return []
    from hydra.core.override_parser.overrides_parser import OverridesParser

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
def suggest_set_flags() -> Iterator[None]:
    """Makes errors within suggest --set KEY=VALUE in place of keys of the config."""
    try:
        yield
    except GraphfoldError as error:
        error.message = re.sub(r"\bSet data\.(\w+)(=[\w.-]*\w)?", _set_flag, error.message)
        raise


def _set_flag(match: re.Match[str]) -> str:
    """The remedy for a trained model: some names of columns are part of it."""
    if match[1] in NAMED_BY_MODEL:
        return "Rename the column in the file, for the model has its name"
    return f"Add --set {match[1]}{match[2] or '=VALUE'}"


def refuse_sweeps(overrides: Sequence[Override]) -> None:
    """Raises ConfigError for several values of a key in a single run."""
    for override in overrides:
        if override.is_sweep_override():
            raise ConfigError(
                f"'{override.input_line}' gives several values. Add -m for one run of each, or "
                f"write a list as {override.key_or_group}=[a,b]."
            )


def is_null_experiment(override: Override) -> bool:
    """True for `experiment=null`, which Hydra takes for a wrong name."""
    return override.key_or_group == "experiment" and override.value() is None


def first_value(override: Override) -> str:
    """An override with the first of its values."""
    if not override.is_sweep_override():
        return override.input_line or ""
    return f"{override.get_key_element()}={next(override.sweep_string_iterator())}"


def in_hydras_grammar(value: Any) -> str:
    """A value as the right side of an override; text is quoted unless it is a plain word."""
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


def _parse(parser: OverridesParser, word: str) -> Override:
    from hydra.errors import HydraException

    try:
        (override,) = parser.parse_overrides([word])
    except HydraException as error:
        raise ConfigError(f"override '{word}' cannot be read. {_HOW}", override=word) from error
    if not override.key_or_group:
        raise ConfigError(f"override '{word}' names no key. {_HOW}", override=word)
    return override


def _quoted(text: str) -> str:
    """Text in single quotes, as Hydra reads it: before a quote it halves the backslashes."""
    body, backslashes = "", 0
    for character in text + "'":
        if character == "'":
            body += "\\" * backslashes + "\\'"
        else:
            body += character
        backslashes = backslashes + 1 if character == "\\" else 0
    return f"'{body[:-2]}'"
