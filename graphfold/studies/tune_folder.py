"""TuneFolder: where a search keeps its files, and what makes it resumable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from graphfold.errors import CheckpointError, GraphfoldError
from graphfold.files import write_text
from graphfold.options import option_faults
from graphfold.training.config.check_config import RULES
from graphfold.training.config.stored_config import read_yaml


@dataclass(frozen=True)
class Search:
    """A search as it was asked for; with the study it is all that going on needs.

    Args:
        overrides: of every trial; nothing of them depends on the current folder.
        config_dir: a further folder of config files.
        space: as in the config.
        trials: how many there are to be.
        startup_trials: random ones at the start.
        prune: whether bad trials are stopped.
        warmup_epochs: how many epochs every trial has.
        seed: of the search.
        monitor: the metric under val/ that is to be improved.
        direction: "min" or "max", whichever is better.
    """

    overrides: list[str]
    config_dir: str | None
    space: dict[str, Any]
    trials: int
    startup_trials: int
    prune: bool
    warmup_epochs: int
    seed: int
    monitor: str
    direction: str

    @property
    def config_folder(self) -> Path | None:
        """The further folder of config files as a path."""
        return None if self.config_dir is None else Path(self.config_dir)


@dataclass(frozen=True)
class TuneFolder:
    """The files of one search, below `path`."""

    path: Path

    @property
    def search(self) -> Path:
        return self.path / "tune.yaml"

    @property
    def study(self) -> Path:
        return self.path / "study.db"

    @property
    def table(self) -> Path:
        return self.path / "trials.csv"

    @property
    def plot(self) -> Path:
        return self.path / "trials.svg"

    @property
    def configs(self) -> Path:
        return self.path / "configs"

    @property
    def best(self) -> Path:
        return self.configs / "experiment" / "best.yaml"

    def trial(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.path / "trials" / str(number)

    def write_search(self, search: Search) -> None:
        """Writes what was asked."""
        write_text(self.search, yaml.safe_dump(asdict(search), sort_keys=False))

    def read_search(self) -> Search:
        """The search that the file describes.

        Raises:
            CheckpointError: if this is no folder of a search, or its file is damaged.
        """
        if not self.search.is_file():
            raise CheckpointError(
                f"{self.path}: not the folder of a search, for it has no tune.yaml. Name the "
                "folder that graphfold tune printed."
            )
        try:
            content = read_yaml(self.search)
            if not isinstance(content, dict):
                raise ValueError("it holds no keys")
            faults = option_faults("a search", Search, content)
            if faults:
                raise ValueError(faults[0].rstrip("."))
            for key, rule in RULES.items():
                name = key.removeprefix("tune.")
                if key in ("seed", f"tune.{name}") and (fault := rule.fault(content[name])):
                    raise ValueError(f"{name} is {content[name]!r}, but {fault.rstrip('.')}")
            if content["direction"] not in ("min", "max"):
                raise ValueError(f"direction is {content['direction']!r}")
            return Search(**content)
        except (OSError, yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"{self.search}: cannot be read ({error}). Restore the file.".replace("\n", " ")
            ) from error

    @contextmanager
    def readable_study(self) -> Iterator[None]:
        """Whatever Optuna raises within is a fault of its database, which may be damaged.

        Raises:
            CheckpointError: naming the file.
        """
        try:
            yield
        except (GraphfoldError, OSError, MemoryError):
            raise
        except Exception as error:
            fault = f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".")
            raise CheckpointError(
                f"{self.study}: cannot be read as the trials of this search ({fault}). Restore the "
                "file, or remove it to start the search anew."
            ) from error
