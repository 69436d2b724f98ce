"""Objects that cannot be watched: the message names their place."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import watch_cells
from torch import nn
from watch_cells import (
    KEPT,
    Plain,
    by_clock,
    by_date,
    by_environ,
    by_file,
    by_getenv,
    by_late_import,
    by_lock,
    by_numpy,
    by_random,
    hooked,
)

from graphfold.batching import Cell
from graphfold.batching.engine.watch import Unwatchable, Watch

REFUSED: dict[str, tuple[Callable[[], Cell], str]] = {
    "lock": (
        lambda: Plain(queue=SimpleNamespace(lock=threading.Lock())),
        "it reads self.queue.lock, a _thread.lock, which cannot be watched",
    ),
    "global lock": (lambda: Plain(by_lock), "self.function's global LOCK, a _thread.lock"),
    "shared value": (
        lambda: Plain(shared=multiprocessing.Value("d", 2.0)),
        "it reads self.shared._.*, a .*, which cannot be watched",
    ),
    "value of C": (lambda: Plain(scale=ctypes.c_double(2.0)), "self.scale, a ctypes.c_double"),
    "event": (lambda: Plain(event=threading.Event()), "self.event._cond._lock"),
    "of a thread": (lambda: Plain(own=threading.local()), "self.own, a _thread._local"),
    "generator": (lambda: Plain(items=iter([2.0])), "self.items, a list_iterator"),
    "count": (lambda: Plain(items=itertools.count()), "self.items, a itertools.count"),
    "proxy": (lambda: Plain(items=weakref.proxy(KEPT)), "self.items, a weakref.CallableProxyType"),
    "random.Random": (lambda: Plain(rng=random.Random(1)), "self.rng, a random.Random"),
    "bound random": (lambda: Plain(random.Random(1).random), "self.function's object, a random"),
    "torch.Generator": (lambda: Plain(rng=torch.Generator()), "self.rng, a torch._C.Generator"),
    "numpy Generator": (lambda: Plain(rng=np.random.default_rng(1)), "self.rng.*Generator"),
    "large array": (
        lambda: Plain(table=np.ones(600)),
        "self.table, a numpy.ndarray of 4800 bytes, which cannot be watched",
    ),
    "array of objects": (
        lambda: Plain(table=np.array([None])),
        "self.table, a numpy.ndarray of objects",
    ),
    "too much": (lambda: Plain(items=dict.fromkeys(range(30_000))), "self.items, .* too many"),
    "environ": (lambda: Plain(by_environ), "environment variables cannot be watched"),
    "getenv": (lambda: Plain(by_getenv), "environment variables cannot be watched"),
    "clock": (lambda: Plain(by_clock), "global time: the clock cannot be watched"),
    "date": (lambda: Plain(by_date), "the clock cannot be watched"),
    "random": (lambda: Plain(by_random), "random numbers of Python cannot be watched"),
    "numpy.random": (lambda: Plain(by_numpy), "random numbers of NumPy cannot be watched"),
    "file": (
        lambda: Plain(by_file),
        "it calls self.function, which reads files: that cannot be watched",
    ),
    "late import": (lambda: Plain(by_late_import), "imports this_is_no_module when it runs"),
    "named method": (
        lambda: Plain(lambda x: KEPT.tell() * x),
        "Scaler.tell's global LOCK|Scaler.tell's global .*: ",
    ),
    "hook": (hooked, "it has hooks"),
    "hook of a part": (lambda: Plain(part=nn.Sequential(hooked())), "self.part.0 has hooks"),
    "script": (
        lambda: Plain(part=torch.jit.script(nn.Linear(2, 2))),
        "it reads self.part",
    ),
    "attributes by any name": (
        lambda: Plain(lambda x: getattr(KEPT, "".join(["te", "ll"]))() * x),
        "Scaler.tell's global",
    ),
    "lazy module": (lambda: Plain(part=nn.LazyLinear(2)), "it has hooks|self.part has hooks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_objects_that_cannot_be_watched_are_named(name: str) -> None:
    make, message = REFUSED[name]
    cell = make()
    with pytest.raises(Unwatchable, match=message):
        Watch(cell)


def test_a_module_that_numpy_has_not_loaded_yet_is_refused() -> None:
    code = """
import sys
import watch_cells
from graphfold.batching.engine.watch import Watch
assert "numpy.random" not in sys.modules
Watch(watch_cells.Plain(watch_cells.by_numpy))
"""
    path = os.pathsep.join(map(str, [Path(watch_cells.__file__).parent, *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Unwatchable: it reads " in done.stderr
    assert "random numbers of NumPy cannot be watched" in done.stderr
