"""Kernels that torch does not know, in torch's profiles; there they would pass for Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]
from torch.autograd.profiler import record_function

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def profiled(name: str, kernel: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A kernel that profiles list as an operation `graphfold::name`."""

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not _profiler_enabled():
            return kernel(*args, **kwargs)
        with record_function(f"graphfold::{name}"):
            return kernel(*args, **kwargs)

    return call
