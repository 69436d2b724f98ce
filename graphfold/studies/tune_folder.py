"""TuneFolder: where a search keeps its files, and what makes it resumable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from graphfold.errors import CheckpointError, ConfigError, GraphfoldError
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
        storage: address of the database that several workers share; None for one in the folder.
        study: the name of the search in that database.
        heartbeat: seconds between two signs of life of a worker.
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
    storage: str | None = None
    study: str = "tune"
    heartbeat: From1 = 60

    @property
    def config_folder(self) -> Path | None:
        """The further folder of config files as a path."""
        return None if self.config_dir is None else Path(self.config_dir)

    @property
    def definition(self) -> dict[str, Any]:
        """All that the workers of one search agree on; each may have its data elsewhere."""
        overrides = [word for word in self.overrides if not word.startswith(PLACES)]
        common = {"space": self.space, "monitor": self.monitor, "direction": self.direction}
        return {"overrides": overrides, **common}


#: Overrides that say where the data are.
PLACES = ("data.path=", "data.root=", "data.cache_dir=")


def shared_address(text: str) -> str:
    """The address of a database that workers share; a file of SQLite as an absolute path.

    Raises:
        ConfigError: if it is none, or one that a single process has in memory.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    examples = "sqlite:////disk/search.db or postgresql+psycopg2://host/base"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ConfigError(
            f"tune.storage is '{text}', but it must be the address of a database, such as "
            f"{examples}."
        ) from error
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ConfigError(
                f"tune.storage is '{text}', a database in the memory of one process, which no "
                f"other worker can share. Give the address of a file or a server: {examples}."
            )
        url = url.set(database=str(Path(str(url.database)).expanduser().absolute()))
    return url.render_as_string(hide_password=False)


#: The names of what is written into the folder of a search; SQLite writes beside its database.
CONTENTS = (
    *("tune.yaml", "trials.csv", "trials.svg", "configs", "trials"),
    *("study.db", "study.db-journal", "study.db-wal", "study.db-shm"),
)


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
    def readable_study(self, storage: str | None = None) -> Iterator[None]:
        """Whatever Optuna raises within is a fault of its database, which may be damaged.

        Args:
            storage: address of the database; None for the file in the folder.

        Raises:
            CheckpointError: naming the file or the address.
        """
        try:
            yield
        except (GraphfoldError, OSError, MemoryError):
            raise
        except Exception as error:
            fault = f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".")
            place = self.study if storage is None else without_password(storage)
            remedy = "Restore the file, or remove it to start the search anew."
            if storage is not None:
                remedy = "Correct tune.storage, install the driver of the database, or start it."
            raise CheckpointError(
                f"{place}: cannot be read as the trials of this search ({fault}). {remedy}"
            ) from error


def without_password(address: str) -> str:
    """The address of a database as it is shown."""
    from sqlalchemy.engine import make_url

    return make_url(address).render_as_string(hide_password=True)
