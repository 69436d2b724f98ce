"""Output of a process: warnings in one line, and only the first of several processes prints."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

from graphfold.training.process.launch import is_first


@contextmanager
def readable_warnings(debug: bool = False) -> Iterator[None]:
    """Prints warnings of graphfold in one line each; warnings of libraries only with `debug`."""
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


#: Seconds that a further process waits for the first one to report a fault of both.
PATIENCE = 5.0


@contextmanager
def printing_once() -> Iterator[None]:
    """Within, only the first process prints, warns and reports errors: all have the same ones.

    torchrun ends all processes as soon as one of them fails. So the others wait for it to end them
    once the first one has reported the error; one that fails alone ends by itself.
    """
    if is_first():
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except KeyboardInterrupt as error:
            raise SystemExit(1) from error
        except Exception as error:
            with suppress(KeyboardInterrupt):
                time.sleep(PATIENCE)
            raise SystemExit(getattr(error, "exit_code", 1)) from error
