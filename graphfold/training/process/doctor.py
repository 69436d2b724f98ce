"""Facts about this machine and this installation, for `graphfold doctor`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from graphfold.batching.native import library
from graphfold.batching.native.build import compiler, library_name
from graphfold.datasets.corpora.corpus import default_root
from graphfold.datasets.storage.cache import clear, default_cache_dir, most_bytes, size_of
from graphfold.errors import count_of

#: Distributions whose versions decide what is computed.
LIBRARIES = ("graphfold", "torch", "numpy", "rdkit", "pyarrow", "hydra-core")

#: Those that commands use where they are installed.
EXTRAS = ("lightning", "torch-scatter", "scikit-learn", "optuna", "transformers", "chemprop")


def facts() -> dict[str, str]:
    """Name -> value, in the order in which they are read.

    The native library is compiled if there is none yet.
    """
    missing = library.why_missing(torch.float32)
    native = missing or f"works, {library_name('float', library.instruction_set())}"
    command = compiler()
    return {
        "python": f"{platform.python_version()} ({platform.platform()})",
        **dict(_versions()),
        "torch build": _build_of_torch(),
        "threads": f"{torch.get_num_threads()} of torch",
        "instruction set": library.instruction_set(),
        "C compiler": " ".join(command) if command else "none was found",
        "native library": native,
        "cache": _cache(default_cache_dir()),
        "data root": _root(default_root()),
    }


def clear_cache() -> str:
    """Empties the cache folder, and says what was freed."""
    folder = default_cache_dir()
    return f"{folder}: {_megabytes(clear(folder))} freed"


def _versions() -> Iterator[tuple[str, str]]:
    installed = {item.name.lower(): item.version for item in metadata.distributions()}
    for name in (*LIBRARIES, *EXTRAS):
        yield name, installed.get(name, "not installed")


def _build_of_torch() -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no device"
    parallel = torch.__config__.parallel_info()
    openmp = "with" if "ATen parallel backend: OpenMP" in parallel else "without"
    return f"{openmp} OpenMP, CUDA {torch.version.cuda or 'none'} ({device})"


def _cache(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} (empty)"
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    size = _megabytes(sum(map(size_of, entries)))
    return (
        f"{folder} ({count_of(len(entries), 'item')}, {size}; stored copies up to "
        f"{_megabytes(most_bytes())})"
    )


def _root(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} (no such folder)"
    return f"{folder} ({count_of(sum(path.is_dir() for path in folder.iterdir()), 'folder')})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
