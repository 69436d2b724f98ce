"""CommandParser: an argument parser that reports errors in one line, with the likely spelling."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from graphfold.errors import did_you_mean


class CommandParser(argparse.ArgumentParser):
    """An argument parser that takes whole option names and gives one-line errors."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        stop = "" if message.endswith("?") else "."
        self.exit(2, f"error: {message}{stop} See {self.prog} --help.\n")

    def check_rest(self, rest: Sequence[str], takes_overrides: bool) -> None:
        """Refuses what no argument took, except overrides where the command takes them."""
        options = [option for action in self._actions for option in action.option_strings]
        for word in rest:
            if word.startswith("-"):
                self.error(f"no option '{word}'.{did_you_mean(word, options)}".rstrip("."))
            if not takes_overrides:
                self.error(f"'{word}' is one argument too many")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Checks a choice, as argparse does, and suggests the likely one."""
        if action.choices is not None and value not in action.choices:
            choices = list(action.choices)
            what = action.metavar.lower() if isinstance(action.metavar, str) else "choice"
            self.error(
                f"no {what} '{value}'.{did_you_mean(value, choices)} There are: "
                f"{', '.join(choices)}"
            )
