"""Facts of this machine and installation that a run depends on, and faults.

A fault is a fact that makes results slow, or commands fail, and that the user can mend.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphfold.batching.native import library
from graphfold.batching.native.build import FOLDER, compiler, library_name
from graphfold.datasets.corpora.corpus import default_root
from graphfold.datasets.storage.cache import (
    STORED,
    clear,
    default_cache_dir,
    most_bytes,
    size_of,
)
from graphfold.datasets.storage.reading import available_cores
from graphfold.errors import ConfigError, count_of

#: Distributions whose versions decide what is computed; all that graphfold needs are checked.
LIBRARIES = ("graphfold", "torch", "numpy", "rdkit", "pyarrow", "hydra-core")

#: Those that commands use where they are installed.
EXTRAS = ("lightning", "torch-scatter", "scikit-learn", "optuna", "ray", "chemprop")

#: Less free space than this, and the next packed file may not fit.
LEAST_FREE = 1e9


@dataclass(frozen=True)
class Fact:
    """A line of `graphfold doctor`.

    Args:
        name: what it is about.
        value: what is so.
        fault: what is wrong with it and what to do, in sentences; "" if nothing is.
    """

    name: str
    value: str
    fault: str = ""


def facts() -> Iterator[Fact]:
    """All facts, in the order in which they are read.

    The native library is compiled if there is none yet.
    """
    yield Fact("python", f"{platform.python_version()} ({platform.platform()})")
    yield from _versions()
    yield from (look() for look in _LOOKS)


def clear_cache() -> str:
    """Empties the cache folder, and says what was freed."""
    folder = default_cache_dir()
    return f"{folder}: {_megabytes(clear(folder))} freed"


def _versions() -> Iterator[Fact]:
    installed: dict[str, str] = {
        canonicalize_name(d.name): d.version for d in metadata.distributions()
    }
    faults: dict[str, str] = {
        canonicalize_name(need.name): f"graphfold needs {need}. pip install '{need}'"
        for need in map(Requirement, metadata.requires("graphfold") or ())
        if (need.marker is None or need.marker.evaluate({"extra": ""}))
        and not need.specifier.contains(
            installed.get(canonicalize_name(need.name), "0"), prereleases=True
        )
    }
    for name in dict.fromkeys((*LIBRARIES, *EXTRAS, *faults)):
        fault = faults.get(name, "")
        if name == "torch-scatter" and name in installed and not _can_import("torch_scatter"):
            fault = "it was built for another torch and cannot be loaded. make setup-scatter"
        yield Fact(name, installed.get(name, "not installed"), fault)


def _can_import(module: str) -> bool:
    try:
        import_module(module)
    except (ImportError, OSError):
        return False
    return True


def _build_of_torch() -> Fact:
    parallel = torch.__config__.parallel_info()
    openmp = "with" if "ATen parallel backend: OpenMP" in parallel else "without"
    return Fact("torch build", f"{openmp} OpenMP, CUDA {torch.version.cuda or 'none'}")


def _gpu() -> Fact:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    if usable:
        count = torch.cuda.device_count()
        return Fact("GPU", ", ".join(torch.cuda.get_device_name(i) for i in range(count)))
    if not _has_nvidia_device():
        return Fact("GPU", "none")
    if torch.version.cuda is None:
        fault = (
            "there is an NVIDIA GPU, but this torch is built for CPUs alone. Install one with "
            "CUDA: https://pytorch.org/get-started/locally"
        )
    else:
        why = f" ({caught[0].message})" if caught else ""
        fault = (
            f"there is an NVIDIA GPU, but torch with CUDA {torch.version.cuda} cannot use it{why}. "
            "Update the driver, or set CUDA_VISIBLE_DEVICES to a device that is there."
        )
    return Fact("GPU", "there is one, which torch does not use", fault)


def _has_nvidia_device() -> bool:
    return Path("/dev/nvidiactl").exists()


def _cores() -> Fact:
    cores = available_cores()
    value = f"{cores} for this process"
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        value += f", {max(0, cores - load):.1f} of them free in the last minute"
    return Fact("cores", value)


def _threads() -> Fact:
    threads, cores = torch.get_num_threads(), available_cores()
    fault = ""
    if threads > cores:
        fault = (
            f"torch computes on {threads} threads, but this process may use "
            f"{count_of(cores, 'core')}, so threads wait for each other. Set the environment "
            f"variable OMP_NUM_THREADS={cores}"
        )
    return Fact("threads", f"{threads} of torch", fault)


def _instruction_set() -> Fact:
    return Fact("instruction set", library.instruction_set())


def _compiler() -> Fact:
    command, named = compiler(), os.environ.get("CC")
    if command is None and named:
        fault = f"there is no '{named}', which the environment variable CC names. Correct it"
        return Fact("C compiler", "none was found", fault)
    return Fact("C compiler", " ".join(command) if command else "none was found")


def _native() -> Fact:
    missing = library.why_missing(torch.float32)
    if missing is not None:
        fault = f"{missing}. Until then torch runs compiled models, more slowly"
        return Fact("native library", "missing", fault)
    name = library_name("float", library.instruction_set())
    folders = (FOLDER, library.cache_folder())
    path = next((f / name for f in folders if f is not None and (f / name).exists()), None)
    if path is None:
        return Fact("native library", f"works, {name}, made for this process alone")
    origin = "installed with graphfold" if path.parent == FOLDER else "built on this machine"
    return Fact("native library", f"works, {path}, {origin}{_built_by(path)}")


def _built_by(path: Path) -> str:
    """The compiler that a library names; "" if it was stripped."""
    stamp = re.search(rb"GCC: \([^)]*\) [\d.]+|[Cc]lang version [\d.]+", path.read_bytes())
    return f" by {stamp[0].decode(errors='replace')}" if stamp else ""


def _cache() -> Fact:
    folder = default_cache_dir()
    try:
        limit, fault = f"at most {_megabytes(most_bytes())}", ""
    except ConfigError as error:
        limit, fault = "no limit", str(error)
    if not folder.is_dir():
        return Fact("cache", f"{folder} (empty)", fault or _fault_of_folder(folder))
    sizes = {"packed data": 0, "native libraries": 0, "corpora and others": 0}
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    for path in entries:
        kind = "packed data" if path.suffix == STORED else "corpora and others"
        sizes["native libraries" if path.name == "native" else kind] += size_of(path)
    parts = [f"{name} {_megabytes(size)}" for name, size in sizes.items()]
    parts[0] += f", {limit}"
    value = f"{folder} ({count_of(len(entries), 'item')}: {'; '.join(parts)})"
    return Fact("cache", value, fault or _fault_of_folder(folder))


def _fault_of_folder(folder: Path) -> str:
    """Sentences that say why nothing can be stored in a folder, which may be absent yet; or ""."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return (
            "nothing can be written there, so data are read anew by every run. Set the environment "
            "variable XDG_CACHE_HOME to a folder that you may write to"
        )
    free = shutil.disk_usage(place).free
    if free < LEAST_FREE:
        return (
            f"only {_megabytes(free)} are free on its disk. graphfold doctor --clear-cache, or set "
            "the environment variable XDG_CACHE_HOME to a folder with space"
        )
    return ""


def _root() -> Fact:
    folder = default_root()
    if folder.is_dir():
        count = sum(path.is_dir() for path in folder.iterdir())
        return Fact("data root", f"{folder} ({count_of(count, 'folder')})")
    fault = ""
    if os.environ.get("GRAPHFOLD_DATA"):
        fault = "the environment variable GRAPHFOLD_DATA names no folder. Correct it or unset it"
    return Fact("data root", f"{folder} (no such folder)", fault)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


_LOOKS: tuple[Callable[[], Fact], ...] = (
    _build_of_torch,
    _gpu,
    _instruction_set,
    _cores,
    _threads,
    _compiler,
    _native,
    _cache,
    _root,
)
