"""Filters of warnings: commands print graphfold's own, not those of its libraries."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOGGERS = ("lightning.pytorch", "lightning.fabric")


@contextmanager
def readable_warnings(debug: bool = False) -> Iterator[None]:
    """Prints graphfold's own warnings in one line each, those of libraries only with `debug`."""
    with warnings.catch_warnings():
        if not (debug or sys.warnoptions):
            choose_warnings()
        yield


def choose_warnings() -> None:
    """Chooses the warnings of this process."""
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", category=UserWarning, module=r"graphfold\.")
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)


@contextmanager
def warnings_once() -> Iterator[None]:
    """Prints each warning once, however many runs it comes from."""
    show, seen = warnings.showwarning, set()

    def show_new(message: Warning | str, *place: Any, **options: Any) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            show(message, *place, **options)

    warnings.showwarning = show_new
    try:
        yield
    finally:
        warnings.showwarning = show


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silences what Lightning says of its own workings; errors still come through."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings():
        silence_lightning()
        yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def silence_lightning() -> None:
    """Silences Lightning in this process."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(lightning|torch)\..*")
