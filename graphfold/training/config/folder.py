"""The folder of the config files."""

from __future__ import annotations

from pathlib import Path

from graphfold.errors import ConfigError


def config_folder() -> Path:
    """The config files: in the package when installed, beside it in an editable install."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"{package / 'configs'}: the config files are gone. Install graphfold again.")
