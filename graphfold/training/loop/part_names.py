"""Names of parts of a model: a dotted name stands for all weights whose names begin with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from graphfold.errors import ConfigError, did_you_mean


def is_part(name: str, of: Sequence[str]) -> bool:
    """True if a dotted name is one of some parts or lies in one."""
    return any(name == part or name.startswith(f"{part}.") for part in of)


def refuse_unknown_parts(option: str, parts: Sequence[str], weights: Sequence[str]) -> None:
    """Raises ConfigError for the first part without weights.

    Args:
        option: what names the parts, for the message.
        parts: their names.
        weights: the names of all weights of the model.
    """
    for wanted in parts:
        if not any(is_part(name, [wanted]) for name in weights):
            known = list(dict.fromkeys(_beginnings(weights)))
            top = [name for name in known if "." not in name]
            raise ConfigError(
                f"{option} names '{wanted}', but no weights of the model are called so."
                f"{did_you_mean(wanted, known)} Its parts are {', '.join(top)}, and parts of "
                f"them such as {max(known, key=lambda name: name.count('.'))}."
            )


def _beginnings(names: Sequence[str]) -> Iterator[str]:
    """All dotted names that names begin with."""
    for name in names:
        yield from accumulate(name.split("."), lambda a, b: f"{a}.{b}")
