"""Progress: how far long work is, on standard error; short work says nothing."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")

#: Seconds before anything is shown, and between two updates of the bar on a terminal.
_QUIET, _UPDATE = 2.0, 0.2

#: Seconds between two lines in a log: the first come soon, then one every few minutes.
_FIRST_LINE, _LAST_LINE = 5.0, 300.0


def shown(
    items: Iterable[Item],
    doing: str,
    count: Callable[[Item], int] = lambda _: 1,
    total: int | None = None,
) -> Iterator[Item]:
    """The items; meanwhile standard error tells how many records are done, and how fast.

    A terminal has a bar that goes away at the end. Where standard error is a file or a pipe, a line
    comes now and then, ever more rarely: a log of hours stays short. A process that shares the work
    of another one says nothing: that one counts for all.

    Args:
        items: what is gone through.
        doing: what is done, such as "predicting new.csv".
        count: the number of records that an item holds.
        total: how many records there are; None if nobody knows.
    """
    if multiprocessing.parent_process() is not None:
        yield from items
        return
    meter = (_Bar if sys.stderr.isatty() else _Lines)(doing, total)
    try:
        for item in items:
            yield item
            meter.add(count(item))
    finally:
        meter.close()


class _Lines:
    """Lines in a log."""

    def __init__(self, doing: str, total: int | None) -> None:
        self.doing, self.total, self.done = doing, total, 0
        self.start = time.monotonic()
        self.wait = _FIRST_LINE
        self.next = self.start + self.wait

    def add(self, count: int) -> None:
        """Counts records that are done."""
        self.done += count
        now = time.monotonic()
        if now >= self.next:
            self.show(now)

    def show(self, now: float) -> None:
        """Prints a line."""
        print(f"{self.doing}: {self.text(now)}", file=sys.stderr, flush=True)
        self.wait = min(2 * self.wait, _LAST_LINE)
        self.next = now + self.wait

    def text(self, now: float) -> str:
        """The records and the speed."""
        of = "" if self.total is None else f" of {self.total:,}"
        speed = self.done / max(now - self.start, 1e-9)
        return f"{self.done:,}{of} records, {speed:,.0f} a second"

    def close(self) -> None:
        """Ends the display."""


class _Bar(_Lines):
    """A bar on a terminal."""

    def __init__(self, doing: str, total: int | None) -> None:
        super().__init__(doing, total)
        self.next = self.start + _QUIET
        self.bar: Any = None

    def show(self, now: float) -> None:
        """Moves the bar, which appears with the first call."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        if self.bar is None:
            text = TextColumn("{task.fields[text]}")
            columns = (TextColumn(self.doing), BarColumn(bar_width=30), text)
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, text="")
        self.bar.update(self.task, completed=self.done, text=self.text(now))
        self.next = now + _UPDATE

    def close(self) -> None:
        """Takes the bar away."""
        if self.bar is not None:
            self.bar.stop()
