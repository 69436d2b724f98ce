"""The folder of the config files, and what Hydra has to know to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from graphfold.errors import ConfigError


def config_folder() -> Path:
    """The config files: in the package when installed, beside it in an editable install.

    From here on Hydra knows what they have in them: `${before:N}`, `${fitting:GROUP}`, and
    `adapter_options` and `model_options`, which leave the keys of `data` and `model` open.
    """
    folder = _find_folder()
    OmegaConf.register_new_resolver("before", _before, replace=True)
    OmegaConf.register_new_resolver("fitting", _fitting, replace=True)
    # An adapter, and the class of a model, have more options than a config file names: KEY=VALUE
    # sets them without a +.
    for name, section in (("adapter_options", "data"), ("model_options", "model")):
        ConfigStore.instance().store(
            name, OmegaConf.create({}, flags={"struct": False}), package=section
        )
    return folder


def _find_folder() -> Path:
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


def _fitting(group: str, *, _root_: DictConfig) -> str:
    """The model that defaults.yaml has for the data, or the callbacks that it has for the model.

    Args:
        group: "model" or "callbacks".
        _root_: the options that are chosen, group -> option; those of groups that stand in the
            list of defaults with `${...}` are absent unless an override or an experiment names one.
    """
    table = yaml.safe_load((_find_folder() / "defaults.yaml").read_text(encoding="utf-8"))
    model = _root_.get("model", table["model"].get(_root_.get("data"), "binary_tree_lstm"))
    return str(model if group == "model" else table["callbacks"].get(model, "default"))
