"""What hatchling calls while a wheel is made: compiles the native libraries that it ships.

The wheel has them beside their sources, for each dtype and, on x86, for AVX-512 and AVX2. Where
none can be compiled the wheel is pure Python: torch then runs the models, more slowly, until the
machine that it is installed on has a C compiler. An editable install compiles nothing; libraries
are made, and kept in the user's cache, when they are first needed.

The environment variable GRAPHFOLD_TARGET names another kind of machine, by the platform tag of its
wheels; CC has to be `zig cc` then. Such a wheel has all of its libraries, or is not made
(scripts/wheels.py makes those of all).
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

#: Where the sources are, in the checkout as in the wheel.
HOME = "graphfold/batching/native"


class NativeLibraries(BuildHookInterface):
    """Adds the libraries to a wheel, and says which machines it is for."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles them; `version` is "editable" or "standard"."""
        if self.target_name != "wheel" or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="graphfold-")
        code = native_build(Path(self.root))
        target = named_target(code)
        libraries, faults = compile_all(code, target, Path(self._folder.name))
        if target is not None and faults:
            raise RuntimeError(f"there is no wheel for {target.tag}: {faults[0]}")
        for fault in dict.fromkeys(faults):
            self.app.display_warning(f"native code of graphfold is left out: {fault}")
        if not libraries:
            self.app.display_warning(
                "the wheel is pure Python: until a C compiler is there where it is installed, "
                "models run without native code, and slower"
            )
            return
        build_data["force_include"].update({str(x): f"{HOME}/{x.name}" for x in libraries})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.tag if target else platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what the wheel has by now."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def native_build(root: Path) -> Any:
    """The module that compiles them, which needs nothing else of graphfold."""
    spec = importlib.util.spec_from_file_location("native_build", root / HOME / "build.py")
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    return code


def named_target(code: Any) -> Any:
    """The kind of machine that GRAPHFOLD_TARGET names; None if it names none."""
    tag = os.environ.get("GRAPHFOLD_TARGET")
    if tag and tag not in code.TARGETS:
        known = ", ".join(code.TARGETS)
        raise ValueError(f"GRAPHFOLD_TARGET is '{tag}', and there are {known}. Name one of them.")
    return code.TARGETS[tag] if tag else None


def compile_all(code: Any, target: Any, folder: Path) -> tuple[list[Path], list[str]]:
    """The libraries that could be compiled, and what is wrong with the others."""

    def compile_one(wanted: tuple[str, str]) -> Path | str:
        try:
            return code.build(*wanted, folder, target)
        except (code.BuildError, OSError) as error:
            return str(error)

    instruction_sets = (target or code.this_machine()).instruction_sets
    every = [(real, i) for i in instruction_sets for real in code.REALS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(compile_one, every))
    return [x for x in built if isinstance(x, Path)], [x for x in built if isinstance(x, str)]


def platform_tag() -> str:
    """The machines that run what is compiled here: those like this one."""
    platforms = (tag.platform for tag in sys_tags())
    return next(p for p in platforms if not p.startswith(("manylinux", "musllinux")))
