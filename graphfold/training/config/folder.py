"""The folder of the config files, and the resolver that they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from graphfold.errors import ConfigError


def config_folder() -> Path:
    """The config files: in the package when installed, beside it in an editable install.

    Their resolver is registered, too.

    Raises:
        ConfigError: if they are not there.
    """
    register_resolvers()
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"{package / 'configs'}: the config files are gone. Install graphfold again.")


def register_resolvers() -> None:
    """Lets OmegaConf resolve `${before:N}`, the number before N, in config files."""
    OmegaConf.register_new_resolver("before", _before, replace=True)


def _before(depth: Any) -> int:
    """The number before: rounds that follow the first one, which is a pass with other cells."""
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 2:
        raise ValueError(f"the depth is {depth!r}; this model needs a whole number from 2 on")
    return depth - 1
