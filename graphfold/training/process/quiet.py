"""Output of a process: graphfold's own warnings; of several processes only the first prints."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from graphfold.training.process.launch import is_first


@contextmanager
def readable_warnings(debug: bool = False) -> Iterator[None]:
    """Prints graphfold's own warnings in one line each, those of libraries only with `debug`."""
    with warnings.catch_warnings():
        if not (debug or sys.warnoptions):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module=r"graphfold\.")
            warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
        yield


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
def printing_once() -> Iterator[None]:
    """Within, only the first process prints, warns and fails aloud, for all of them do the same."""
    if is_first():
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:
            raise SystemExit(getattr(error, "exit_code", 1)) from error
