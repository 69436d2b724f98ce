"""The lines of `graphfold --version`: what a run depends on beside its config."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from graphfold.commands.loading import loading


def version_lines() -> Iterator[str]:
    """Versions, instruction set, native library and GPU, a line each.

    The native library is compiled if there is none yet.
    """
    with loading():
        import torch

        from graphfold.batching.native.build import compiler
        from graphfold.batching.native.library import instruction_set, why_missing

    yield f"graphfold {version('graphfold')}"
    yield f"python {platform.python_version()}, {platform.platform()}"
    names = ("torch", "numpy", "rdkit", "pyarrow", "hydra-core")
    yield ", ".join(f"{name} {version(name)}" for name in names)
    yield f"processor: {instruction_set()}, {torch.get_num_threads()} threads of torch"
    missing = why_missing(torch.float32)
    command = " ".join(compiler() or ["none"])
    yield f"native library: {missing or 'works'} (C compiler: {command})"
    devices = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    yield f"GPU: {', '.join(devices) or 'none'} (CUDA of torch: {torch.version.cuda or 'none'})"
