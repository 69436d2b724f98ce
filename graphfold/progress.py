"""Progress of long work, on standard error; short work prints nothing."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")

#: Seconds before the bar on a terminal appears, and between two updates.
_QUIET, _UPDATE = 2.0, 0.2

#: Seconds before the first line in a log; each interval is twice the last, up to the most.
_FIRST_LINE, _LAST_LINE = 5.0, 300.0


def shown(
    items: Iterable[Item],
    doing: str,
    count: Callable[[Item], int] = lambda _: 1,
    total: int | None = None,
) -> Iterator[Item]:
    """Yields the items; standard error shows the number of records so far, and their speed.

    A terminal has a bar that disappears at the end. A file or a pipe gets lines at growing
    intervals, so that a log of hours stays short. A worker process prints nothing: its parent
    counts for all.

    Args:
        items: the items.
        doing: the work, such as "predicting new.csv".
        count: the number of records of an item.
        total: the number of all records; None if it is unknown.
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
        """Updates the bar, which appears with the first call."""
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
        """Removes the bar."""
        if self.bar is not None:
            self.bar.stop()
