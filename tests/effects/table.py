"""The table of effects: for every option that a user can set, what it changes, and a check of that.

This file says what a row is, `walk.py` finds the options, and the files `*_options.py` hold the
rows. A new option is a new row: `test_completeness.py` names the options that have none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Check: TypeAlias = Callable[..., None]

#: The three kinds of statements.
NOTHING, CHANGES, REFUSED = "nothing changes", "changes", "refused"


@dataclass(frozen=True)
class Row:
    """The effect of one option, or of a few that one check tries together.

    Args:
        options: ids out of `walk.options`.
        kind: `NOTHING`, `CHANGES` or `REFUSED`.
        statement: the effect in words.
        check: fails where the statement is untrue. Its arguments are fixtures, and `option` for the
            id where every option is tried on its own.
        slow: whether only `make test-slow` runs it.
    """

    options: tuple[str, ...]
    kind: str
    statement: str
    check: Check
    slow: bool = False

    @property
    def name(self) -> str:
        """Such as `smiles.salts`; of several options the first, and how many follow."""
        more = f" and {len(self.options) - 1} more" if len(self.options) > 1 else ""
        return f"{self.options[0]}{more}, {self.kind}"


class Rows(list[Row]):
    """The rows of one file, in order; its methods decorate checks."""

    def changes(self, options: str | Sequence[str], statement: str, slow: bool = False) -> Any:
        """A row for what an option changes."""
        return self._add(options, CHANGES, statement, slow)

    def nothing(self, options: str | Sequence[str], statement: str, slow: bool = False) -> Any:
        """A row for an option that does not change some result."""
        return self._add(options, NOTHING, statement, slow)

    def refused(self, options: str | Sequence[str], statement: str, slow: bool = False) -> Any:
        """A row about values that are refused with a message."""
        return self._add(options, REFUSED, statement, slow)

    def _add(
        self, options: str | Sequence[str], kind: str, statement: str, slow: bool
    ) -> Callable[[Check], Check]:
        ids = (options,) if isinstance(options, str) else tuple(options)

        def decorate(check: Check) -> Check:
            alone = "option" in inspect.signature(check).parameters
            for group in [(name,) for name in ids] if alone else [ids]:
                self.append(Row(group, kind, statement, check, slow))
            return check

        return decorate
