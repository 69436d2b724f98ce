"""The positive class of a target of two: the one that areas, F1 and recall are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphfold.errors import ConfigError, did_you_mean

#: A class, for all targets or target -> its class; None for the second of the names.
Positive: TypeAlias = str | int | Mapping[str, str | int | bool] | None


def class_name(value: object) -> str:
    """The name of a class as a config or JSON may write it: true and 1.0 are `true` and `1`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1 and 1.0 are one number to JSON
    return str(value).lower() if isinstance(value, bool) else str(value)


def positive_of(positive: Positive, target: str) -> str | None:
    """The positive class of one target, if one is asked for."""
    if isinstance(positive, Mapping):
        return class_name(positive[target]) if target in positive else None
    return None if positive is None else class_name(positive)


def refuse_unknown_targets(positive: Positive, targets: Sequence[str]) -> None:
    """Raises ConfigError for a mapping that names what is no target."""
    for name in positive if isinstance(positive, Mapping) else ():
        if name not in targets:
            raise ConfigError(
                f"data.positive names '{name}', which is no target.{did_you_mean(name, targets)} "
                f"The targets are: {', '.join(targets) or 'none'}."
            )


def positive_last(names: Sequence[str], positive: Positive, target: str) -> tuple[str, ...]:
    """The names of the classes of a target, the positive one last: it has the code 1.

    Raises:
        ConfigError: if a positive class is asked for that is none of two classes.
    """
    wanted = positive_of(positive, target)
    if wanted is None:
        return tuple(names)
    if len(names) != 2:
        raise ConfigError(
            f"data.positive is '{wanted}', but '{target}' has {len(names)} classes, of which none "
            "is the positive one. Leave it out."
        )
    if wanted not in names:
        raise ConfigError(
            f"data.positive is '{wanted}', but the classes of '{target}' are "
            f"{' and '.join(names)}.{did_you_mean(wanted, names)} Name one of them; of several "
            "targets with different classes, data.positive={TARGET: CLASS}."
        )
    (other,) = (name for name in names if name != wanted)
    return (other, wanted)
