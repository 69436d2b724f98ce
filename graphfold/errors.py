"""The errors of graphfold, and functions that write their messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar


class GraphfoldError(ValueError):
    """Base of every error that graphfold raises on purpose.

    The message is what a user reads; the keyword arguments become attributes, so that a program
    can read the facts (`error.line`) without parsing the text.

    Args:
        message: one sentence for the fault and one for the remedy.
        **facts: the facts behind the message.

    Attributes:
        exit_code: what a command returns that it ends: 2 for wrong use or unreadable input.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, **facts: object) -> None:
        message = "\n".join(map(shorten_quotes, message.split("\n")))
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        notes = getattr(self, "__notes__", [])
        return _rebuild, (type(self), self.message, self.facts, notes)


def _rebuild(
    cls: type[GraphfoldError], message: str, facts: dict[str, object], notes: list[str]
) -> GraphfoldError:
    error = cls(message, **facts)
    for note in notes:
        add_note(error, note)
    return error


class GraphError(GraphfoldError):
    """A graph that no schedule can hold: a cycle, a dangling input, a missing root."""


class SchemaError(GraphfoldError):
    """Data that does not fit its schema, or a schema that contradicts itself."""


class ShapeError(GraphfoldError):
    """A tensor of the wrong width or length."""


class KindError(GraphfoldError, TypeError):
    """An object of another kind than is needed: a tuple for a state, a graph for a batch."""


class EngineError(GraphfoldError):
    """A cell that the chosen engine cannot run exactly."""


class DataError(GraphfoldError):
    """An input file or folder that cannot be used as a whole."""

    @classmethod
    def in_file(cls, path: str | Path, fault: str, line: int | None = None) -> DataError:
        """The error about a file, or a 1-based line of it: the place, and the sentences."""
        place = str(path) if line is None else f"{path}:{line}"
        facts: dict[str, object] = {"path": str(path)} | ({} if line is None else {"line": line})
        return cls(f"{place}: {fault}", **facts)


class ConfigError(GraphfoldError):
    """An override, option or configuration that cannot be used."""


class CheckpointError(GraphfoldError):
    """A run folder or checkpoint that cannot be read or trusted."""


class DivergenceError(GraphfoldError):
    """A training with a loss that is no number, or below a bound of zero."""

    exit_code = 1


class ProcessError(GraphfoldError):
    """A process of a training that ended early, and so ended the others."""

    exit_code = 1


class RecordError(GraphfoldError):
    """One record that cannot be read.

    An adapter raises it with the fault and the remedy; the reader adds the place.

    Args:
        fault: the fault and the text in question, without a full stop.
        remedy: what the user can do, as a sentence; None for the usual remedy.
        path: the file; None until the reader adds it.
        line: the 1-based line of the fault; likewise.
    """

    usual_remedy: ClassVar[str] = "Correct the record, or set data.on_error=skip."

    def __init__(
        self,
        fault: str,
        remedy: str | None = None,
        path: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        self.fault = readable(shorten_quotes(fault))
        self.remedy = self.usual_remedy if remedy is None else remedy
        self.path = None if path is None else str(path)
        self.line = line
        place = ":".join(str(part) for part in (self.path, line) if part is not None)
        super().__init__(f"{place}: {self.reason}" if place else self.reason)

    @property
    def reason(self) -> str:
        """The fault and the remedy, without the place."""
        return f"{self.fault}. {self.remedy}" if self.remedy else self.fault

    def at(self, path: str | Path, line: int) -> RecordError:
        """Adds the place to the error; a file or line that it already has stays."""
        return RecordError(self.fault, self.remedy, self.path or path, self.line or line)

    @property
    def place_and_fault(self) -> str:
        """The message without the remedy, for those who skip bad records already."""
        return self.message.removesuffix(f". {self.remedy}") if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return RecordError, (self.fault, self.remedy, self.path, self.line)


class LeftOut(RecordError):
    """A readable record of no use, such as a row without a measured target.

    It is counted and listed with its reason, under data.on_error=raise too; so it may lack a
    remedy.
    """

    usual_remedy = ""

    def at(self, path: str | Path, line: int) -> LeftOut:
        """This reason with its place."""
        return LeftOut(self.fault, self.remedy, self.path or path, self.line or line)

    def __reduce__(self) -> tuple[object, ...]:
        return LeftOut, (self.fault, self.remedy, self.path, self.line)


def shorten_quotes(text: str) -> str:
    """A line of a message, in which no quotation is longer than 200 characters.

    A line of more than 4,000 characters loses its middle.
    """
    text = _LONG_QUOTE.sub(lambda match: f"'{match[1][:197]}...'", text)
    return text if len(text) <= 4_000 else f"{text[:2_000]}{_GAP}{text[-1_900:]}"


# An apostrophe, as in "graphfold's", opens no quotation.
_LONG_QUOTE = re.compile(r"(?<![\w'])'([^'\n]{201,})'(?!\w)")


def readable(text: str, most: int = 600) -> str:
    """Text out of a file as a message may hold it.

    Args:
        text: the text.
        most: how many characters it may have; of longer text the middle is left out.

    Returns:
        The text in one line, with escapes such as \\r and \\xa0 for what cannot be seen.
    """
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
    half = (most - len(_GAP)) // 2
    return text if len(text) <= most else f"{text[:half]}{_GAP}{text[-half:]}"


_GAP = " ... "


def count_of(number: int, noun: str) -> str:
    """A number with its noun, such as "1 record" or "2 records"."""
    return f"{number} {noun}" + "s" * (number != 1)


def some_of(names: Sequence[str], most: int = 6) -> str:
    """The first names and the number of the others, such as "a, b and 214 more"."""
    shown, more = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def add_note(error: Exception, note: str) -> None:
    """Adds a line to the message of any error."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        write_note(error, note)


def write_note(error: Exception, note: str) -> None:
    """`add_note` for Python 3.10, which shows no notes: the message has to say it."""
    error.__notes__ = [*getattr(error, "__notes__", []), note]
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}",)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The hint " Did you mean 'x'?" for a message; empty if no name is close."""
    folded = {candidate.casefold(): candidate for candidate in names}
    close = get_close_matches(name.casefold(), list(folded), n=1)
    return f" Did you mean '{folded[close[0]]}'?" if close else ""


def kind_of(value: object) -> str:
    """The kind of an object for a message: "None", "a tuple of 2", "a Tensor of shape [3, 8]"."""
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, type):
        return f"the class {value.__name__}"
    article = "an" if name[0] in "AEIOUaeiou" else "a"
    if isinstance(value, (tuple, list)):
        return f"{article} {name} of {len(value)}"
    shape = getattr(value, "shape", None)
    return f"{article} {name}" + (f" of shape {list(shape)}" if isinstance(shape, tuple) else "")


def shortened(text: str, most: int = 80) -> str:
    """A piece of input in a message: on one line, and of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def ellipsis(text: str, most: int) -> str:
    """A text of at most `most` characters; a longer one ends in "…"."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_line(error: BaseException) -> str:
    """The message of any error as part of a sentence: short, in one line."""
    return readable(" ".join(str(error).split()).rstrip(".") or type(error).__name__, 300)
