"""TuneFolder: where a search keeps its files, and what makes it resumable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from graphfold.errors import CheckpointError, GraphfoldError
from graphfold.files import write_text
from graphfold.options import From0, From1, Limits, read_section
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
    trials: From1
    startup_trials: From1
    prune: bool
    warmup_epochs: From0
    seed: From0
    monitor: str
    direction: Annotated[str, Limits(choices=("min", "max"))]

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
            return read_section(Search, content)
        except (OSError, yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            fault = str(error).replace("\n", " ").rstrip(".")
            raise CheckpointError(
                f"{self.search}: cannot be read ({fault}). Restore the file."
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
