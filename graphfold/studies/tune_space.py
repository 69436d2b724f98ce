"""Search spaces: which keys of the config are tried, and with which values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
)

from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import is_number
from graphfold.training.config.overrides import in_hydras_grammar

if TYPE_CHECKING:
    from optuna import Trial

_RANGE_KEYS = ("low", "high", "log", "step")

#: Keys that say what is compared and where; a search over them would compare nothing.
_FIXED = ("resume", "monitor", "metrics", "tune", "hydra")

#: A range with more numbers is one to draw from, not to list.
_MOST_CHOICES = 1_000

_HOW = (
    "Give a list of values, or {low: NUMBER, high: NUMBER} with log: true or step: NUMBER if you "
    "like."
)


@dataclass(frozen=True)
class Dimension:
    """One key and the values that it may have.

    Args:
        key: dotted key of the config, or a config group.
        choices: value as Optuna stores it -> value in Hydra's grammar; empty for a range.
        low: the least number.
        high: the largest number; a whole one between whole numbers.
        log: whether small numbers are tried as often as large ones.
        step: the distance between two numbers; None for any number.
    """

    key: str
    choices: Mapping[Any, str] = field(default_factory=dict)
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None

    def suggest(self, trial: Trial) -> str:
        """The override of a trial."""
        if self.choices:
            return self.override(trial.suggest_categorical(self.key, [*self.choices]))
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = int(self.step or 1)
            return self.override(
                trial.suggest_int(self.key, self.low, self.high, step=step, log=self.log)
            )
        return self.override(
            trial.suggest_float(self.key, self.low, self.high, step=self.step, log=self.log)
        )

    def override(self, value: Any) -> str:
        """The override that gives a value, as Optuna stores it.

        Raises:
            ConfigError: if the dimension has no such value.
        """
        try:
            known = value in self.choices if self.choices else is_number(value)
        except TypeError:  # a value that is no key of a mapping
            known = False
        if not known:
            raise ConfigError(f"tune.space: {self.key} has no value {value!r}.")
        return f"{self.key}={self.choices[value] if self.choices else repr(value)}"

    def extremes(self) -> list[str]:
        """Overrides that stand for all: every choice, or both ends of a range."""
        texts = self.choices.values() or (repr(self.low), repr(self.high))
        return [f"{self.key}={text}" for text in texts]


def read_space(node: Any) -> list[Dimension]:
    """The dimensions of `tune.space`: nested like the config, or with dotted keys.

    Raises:
        ConfigError: that lists every dimension which cannot be searched, or if there is none.
    """
    if node is not None and not isinstance(node, Mapping):
        raise ConfigError(f"tune.space is {node!r}, but it maps keys of the config to values.")
    found: list[Dimension] = []
    faults: list[str] = []
    for key, value in _leaves(node or {}):
        with _collected(faults):
            found.append(_dimension(key, value))
    if faults:
        raise ConfigError("\n".join(faults))
    if not found:
        raise ConfigError(
            "tune.space is empty, so there is nothing to search. Give tune.space in the config, or "
            "sweeps such as model.hidden_size=100,300."
        )
    return found


def space_of_sweeps(overrides: Sequence[Override]) -> dict[str, Any]:
    """`tune.space` out of overrides with several values, in Hydra's grammar of sweeps.

    Raises:
        ConfigError: for one that cannot be searched: a glob, a shuffled one.
    """
    return {override.key_or_group: _of_sweep(override) for override in overrides}


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        faults.append(error.message)


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        whole = f"{prefix}.{key}".lstrip(".")
        if isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            yield from _leaves(value, whole)
        elif value is not None:  # null takes a dimension of an earlier file out
            yield whole, value


def _dimension(key: str, value: Any) -> Dimension:
    if key.partition(".")[0] in _FIXED:
        raise ConfigError(f"tune.space: '{key}' cannot be searched. Leave it out.")
    if isinstance(value, Mapping):
        return _range(key, value)
    if not isinstance(value, list | tuple) or not value:
        raise ConfigError(f"tune.space: {key} is {value!r}. {_HOW}")
    texts = [in_hydras_grammar(item) for item in value]
    plain = (str, int, float, bool, type(None))
    stored = [v if isinstance(v, plain) else t for v, t in zip(value, texts, strict=True)]
    if len({*stored}) < len(stored):  # 1, 1.0 and true are one value to Optuna
        raise ConfigError(f"tune.space: {key} names a value twice ({value}). Name each once.")
    return Dimension(key, dict(zip(stored, texts, strict=True)))


def _range(key: str, value: Mapping[str, Any]) -> Dimension:
    for name in value:
        if name not in _RANGE_KEYS:
            hint = did_you_mean(str(name), _RANGE_KEYS)
            raise ConfigError(f"tune.space: {key} has no '{name}'.{hint} {_HOW}")
    low: Any = value.get("low")
    high: Any = value.get("high")
    step, log = value.get("step"), value.get("log", False)
    numbers = [low, high, *([] if step is None else [step])]
    if not all(is_number(n) for n in numbers):
        raise ConfigError(f"tune.space: {key} is {dict(value)}. {_HOW}")
    if not isinstance(log, bool):
        raise ConfigError(f"tune.space: log of {key} is {log!r}. It is true or false.")
    if not low < high:
        raise ConfigError(f"tune.space: low of {key} is {low} and high {high}. Let low be less.")
    if log and (low <= 0 or step is not None):
        raise ConfigError(
            f"tune.space: {key} is on a logarithmic scale, so low is above 0 and there is no step."
        )
    if step is not None and not 0 < step <= high - low:
        raise ConfigError(f"tune.space: step of {key} is {step}. Let it fit between low and high.")
    return Dimension(key, low=low, high=high, log=log, step=step)


def _of_sweep(override: Override) -> Any:
    value = override.value()
    if isinstance(value, ChoiceSweep) and not value.shuffle:
        return [item.text if isinstance(item, QuotedString) else item for item in value.list]
    if isinstance(value, RangeSweep) and not value.shuffle:
        numbers = list(islice(value.range(), _MOST_CHOICES + 1)) if value.step else []
        if not 0 < len(numbers) <= _MOST_CHOICES:
            raise ConfigError(
                f"'{override.input_line}' is a range without numbers, or with more than "
                f"{_MOST_CHOICES}. Write {override.key_or_group}=interval(LOW,HIGH)."
            )
        return numbers
    if isinstance(value, IntervalSweep):
        return {"low": value.start, "high": value.end, "log": "log" in value.tags}
    raise ConfigError(
        f"'{override.input_line}' cannot be searched. Write {override.key_or_group}=a,b,c or "
        f"{override.key_or_group}=interval(LOW,HIGH), with tag(log,...) around it if you like."
    )
