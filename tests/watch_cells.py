"""Cells that read objects of many kinds, and these objects."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import logging
import os
import random
import threading
import time
import types
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Cell
from graphfold.layers import NaryTreeLSTMCell

SIZE = 3
#: Globals that cells below read, and tests change.
SCALE = 2.0
SCALES = [2.0]
TABLE = {"scale": 2.0}
LOCK = threading.Lock()
logger = logging.getLogger(__name__)
PARENTS: list[nn.Module] = []
CLOSURES: list[Any] = []


class Plain(Cell):
    """A cell that calls a function, with attributes as a test gives them."""

    arity = 0

    def __init__(self, function: Callable[..., Any] = F.relu, **attributes: Any) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor, children: Any) -> Mapping[str, Tensor]:
        return {"h": self.function(self.linear(x))}


class Slotted:
    __slots__ = ("__weakref__", "scale")

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Bare:
    __slots__ = ("missing", "scale")


@dataclasses.dataclass(slots=True)
class Record:
    scale: float = 2.0


class Pair(NamedTuple):
    one: list[float]
    other: float


class Mode(enum.Enum):
    ADD = [2.0]
    SUB = [3.0]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Scale(float):
    """A number with an attribute."""


class Config:
    scale = 2.0


class Base(Plain):
    """Reads a file while it is made, which is no matter later."""

    def __init__(self) -> None:
        super().__init__()
        with open(os.devnull) as file:
            self.text = file.read() + str(time.time())

    @property
    def scale(self) -> float:
        return SCALE

    @functools.cached_property
    def kept(self) -> float:
        return sum(SCALES)

    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        return x + TABLE["scale"]

    def forward(self, x: Tensor, children: Any) -> Mapping[str, Tensor]:
        found = super().forward(x, children)["h"] * self.scale * self.kept
        return {"h": self.shifted(found)}


class Partial(Plain):
    def scaled(self, x: Tensor, children: Any, scale: float) -> Mapping[str, Tensor]:
        return {"h": x * scale * SCALE}

    forward = functools.partialmethod(scaled, scale=2.0)  # type: ignore[assignment]


class Wider(NaryTreeLSTMCell):
    """Changes what the library's own code calls."""

    @property
    def read_fields(self) -> tuple[str, ...]:
        return ("h", "c")[: int(SCALE)]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * SCALE

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * SCALES[0]


class Scaler:
    """A callable with state, and more."""

    kept = [1.0]

    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scale * self.kept[0]

    def tell(self) -> float:
        """A method that the cells here do not call."""
        with LOCK:
            return time.time() + random.random() + float(os.environ["SCALE"])


def nested(value: Any, depth: int = 6) -> Any:
    for _ in range(depth):
        value = SimpleNamespace(inner=value)
    return value


def innermost(value: Any) -> Any:
    while hasattr(value, "inner"):
        value = value.inner
    return value


def closing(value: Any) -> Callable[..., Any]:
    def function(x: Tensor) -> Tensor:
        return x * value

    return function


def counting() -> tuple[Callable[..., Any], Callable[[float], None]]:
    """A function, and what changes the variable that it closes over."""
    scale = 2.0

    def function(x: Tensor) -> Tensor:
        return x * scale

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    return function, change


def by_global(x: Tensor) -> Tensor:
    return x * SCALE


def by_list(x: Tensor) -> Tensor:
    return x * sum(value for value in SCALES)


def by_entry(x: Tensor) -> Tensor:
    def inner(value: Tensor) -> Tensor:
        return value * TABLE["scale"]

    return inner(x)


def by_default(x: Tensor, scale: float = 2.0, *, shift: float = 0.0) -> Tensor:
    return x * scale + shift


def by_library(x: Tensor) -> Tensor:
    return F.relu(x)


def by_getattr(x: Tensor) -> Tensor:
    return getattr(F, "elu")(x)  # noqa: B009


def by_import(x: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.silu(x)


def by_call(x: Tensor) -> Tensor:
    return by_global(x) + Scaler(1.0)(x)


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    return x * SCALE


@functools.lru_cache
def cached(x: Tensor) -> Tensor:
    return x * SCALE


def by_class(x: Tensor) -> Tensor:
    return x * Config.scale


def by_autograd(x: Tensor) -> Tensor:
    return Double.apply(x)


def by_other(x: Tensor) -> Tensor:
    return other_library.double(x)


def by_argument(x: Tensor) -> Tensor:
    return getattr(Config, "".join(["sc", "ale"])) * x


def other() -> types.ModuleType:
    """A module with functions that call each other."""
    module = types.ModuleType("other_library")
    text = "def double(x):\n    return x * factor()\n\ndef factor():\n    return 2.0\n"
    exec(text, vars(module))
    return module


other_library = other()


KEPT = Scaler()
OWN = SimpleNamespace(lib=F)


class Reader:
    def __call__(self, x: Tensor) -> Tensor:
        return self._scaled(x)

    def _scaled(self, x: Tensor) -> Tensor:
        return x * SCALE


def with_parent(refer: Callable[[nn.Module], Any]) -> Cell:
    cell = Plain()
    parent = nn.Sequential(cell)
    parent.scale = 2.0
    PARENTS.append(parent)
    cell.parents = refer(parent)
    return cell


def with_buffer(tensor: Tensor) -> Cell:
    cell = Plain()
    cell.register_buffer("scale", tensor)
    return cell


def marked(tensor: Tensor) -> Tensor:
    tensor.mark = 2  # type: ignore[attr-defined]
    return tensor


# --- What nobody can watch


def by_environ(x: Tensor) -> Tensor:
    return x * float(os.environ.get("SCALE", 2))


def by_getenv(x: Tensor) -> Tensor:
    return x * float(os.getenv("SCALE", "2"))


def by_clock(x: Tensor) -> Tensor:
    return x * time.time()


def by_date(x: Tensor) -> Tensor:
    return x * datetime.datetime.now().hour


def by_random(x: Tensor) -> Tensor:
    return x * random.random()


def by_numpy(x: Tensor) -> Tensor:
    return x * np.random.rand()  # noqa: NPY002


def by_file(x: Tensor) -> Tensor:
    with open("scale") as file:
        return x * float(file.read())


def by_lock(x: Tensor) -> Tensor:
    with LOCK:
        return x


def by_late_import(x: Tensor) -> Tensor:
    import this_is_no_module

    return this_is_no_module.function(x)


def hooked() -> Cell:
    cell = Plain()
    cell.register_forward_hook(lambda *_: None)
    return cell
