"""torchmetrics for Lightning: two classes at once, all else when somebody asks for it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NAME = "torchmetrics"

#: Module -> the name that Lightning reads of it.
_READ = {"metric": "Metric", "collections": "MetricCollection", "__about__": "__version__"}


def load_torchmetrics_lightly() -> None:
    """Puts torchmetrics among the loaded modules with no more than Lightning reads of it.

    Lightning cannot be loaded without, though it only asks whether something is a `Metric`. But
    the package loads every metric there is, with scipy.signal and, where it is installed,
    transformers: more than a second, longer than torch. Here its other names are found when they
    are first asked for, by loading all of it. A version whose parts need more of each other is
    loaded as it wants to be.
    """
    spec = find_spec(NAME) if NAME not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    package = sys.modules[NAME] = _LightPackage(spec, spec.loader.exec_module)
    try:
        import_module(f"{NAME}.utilities")  # which loads the next, too, in the order that works
        for module, name in _READ.items():
            setattr(package, name, getattr(import_module(f"{NAME}.{module}"), name))
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]
        return
    package._is_complete = False


class _LightPackage(ModuleType):
    """A package without its own code, which runs when an unknown name is asked for.

    Args:
        spec: of the package.
        run_own_code: runs the package's own code in a module.
    """

    def __init__(self, spec: ModuleSpec, run_own_code: Callable[[ModuleType], object]) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
        self.__path__ = spec.submodule_search_locations or []
        self._logger = logging.getLogger(spec.name)
        self._run_own_code = run_own_code
        self._is_complete = True  # unknown names are unknown for good

    def __getattr__(self, name: str) -> Any:
        if self._is_complete or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        self._is_complete = True
        self._run_own_code(self)
        return getattr(self, name)
