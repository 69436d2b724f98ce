"""The folder of the config files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from graphfold.errors import ConfigError


def config_folder() -> Path:
    """The config files: in the package when installed, beside it in an editable install.

    They may have `${before:N}` in them, which OmegaConf knows from here on.
    """
    OmegaConf.register_new_resolver("before", _before, replace=True)
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"{package / 'configs'}: the config files are gone. Install graphfold again.")


def _before(depth: Any) -> int:
    """One less, for models one of whose rounds is a pass of its own."""
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 2:
        raise ValueError(f"the depth is {depth!r}; this model needs a whole number from 2 on")
    return depth - 1
