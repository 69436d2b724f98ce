"""Paths into JSON values: $.user.name, $['two words'], $.items[0]."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphfold.errors import ConfigError

_STEP = re.compile(
    r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]"
)

#: What `find` returns where there is nothing.
ABSENT = object()


class JsonPath:
    """A path from the root of a JSON value to one place in it.

    A part of JSONPath (RFC 9535): names after a dot, names in quotes and brackets, numbers of
    items. Text without `$` is the name of one key.

    Args:
        text: the path.

    Attributes:
        steps: the keys and the numbers of items on the way.
        name: the last key, without anything around it.

    Raises:
        ConfigError: if it is no such path.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if not text.startswith("$"):
            self.steps: tuple[str | int, ...] = (text,)
        else:
            self.steps = _parse(text)
        if not self.steps or self.steps == ("",):
            raise ConfigError(f"the path '{text}' names no place in a record. Write $.key.")
        self.name = next((str(s) for s in reversed(self.steps) if isinstance(s, str)), text)

    def find(self, value: Any) -> Any:
        """The value at the place; `ABSENT` if the value has no such place."""
        for step in self.steps:
            if (isinstance(step, str) and isinstance(value, Mapping) and step in value) or (
                isinstance(step, int) and _is_list(value) and step < len(value)
            ):
                value = value[step]
            else:
                return ABSENT
        return value


def join_path(path: str, key: str) -> str:
    """The path of a key under another path."""
    return f"{path}.{key}" if re.fullmatch(r"\w+", key) else f"{path}[{json.dumps(key)}]"


def _parse(text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ConfigError(
                f"the path '{text}' cannot be read from '{text[position:]}' on. Write "
                "$.key, $['a key'] or $.list[0]."
            )
        index = step["index"]
        names = (step["name"], step["quoted"], step["double"])
        steps.append(int(index) if index else next(n for n in names if n is not None))
        position = step.end()
    return tuple(steps)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
