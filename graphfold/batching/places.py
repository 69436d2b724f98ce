"""Places: the line of a cell's code that has called an operation, for messages."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

import torch

from graphfold import _torch

_PACKAGE = Path(__file__).parents[1]
#: The code of these files and folders is no cell's.
_LIBRARIES = (str(Path(torch.__file__).parent), str(_PACKAGE / "batching"), _torch.__file__)
#: How much of a line messages show.
MAX_SHOWN = 60


class Place(NamedTuple):
    """A line of code."""

    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
        place = f"line {self.line} of {Path(self.file).name}"
        return f"{place}, `{shown}`" if shown else place


def find_place(outermost: CodeType) -> Place | None:
    """The innermost line now running that is of neither torch nor the engine.

    Args:
        outermost: the code that has called the cell; frames outside of it do not count.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not outermost:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def place_of_error(error: BaseException, outermost: CodeType) -> Place | None:
    """The file and line that an error passed last."""
    found = None
    is_inside = False
    for frame, line in _passed(error.__traceback__):
        if is_inside and not frame.f_code.co_filename.startswith(_LIBRARIES):
            found = Place(frame.f_code.co_filename, line)
        is_inside = is_inside or frame.f_code is outermost
    return found


def _passed(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
