"""RunFolder: where a run keeps its files; one training at a time holds its lock."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from graphfold.errors import CheckpointError, ConfigError
from graphfold.files import locked, refuse_links, remove_leftovers, write_text
from graphfold.options import refuse_address
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.process.launch import is_first

_CONTENTS = (
    "config.yaml",
    "checkpoints",
    "members",
    "metrics.json",
    "metrics.csv",
    "predictions.csv",
    "split.csv",
    "report.html",
    "tensorboard",
)


@dataclass(frozen=True)
class RunFolder:
    """The files of one run, below `path`."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def best(self) -> Path:
        return self.path / "checkpoints" / "best.ckpt"

    @property
    def last(self) -> Path:
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def history(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions.csv"

    @property
    def split(self) -> Path:
        return self.path / "split.csv"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def members(self, count: int) -> list[RunFolder]:
        """The folders of the members of an ensemble, members/1, ...; of one model, this one."""
        if count == 1:
            return [self]
        return [RunFolder(self.path / "members" / str(n)) for n in range(1, count + 1)]

    def create(self, config: TrainingConfig, anew: bool = False) -> None:
        """Prepares the folder, which must exist, for a run and writes its config.

        Args:
            config: of the run.
            anew: whether to begin the folder's own run again; otherwise another run that it holds
                is moved aside.

        Raises:
            ConfigError: if nothing can be written there.
        """
        with self._writing():
            if not anew:
                self._move_earlier()
            self.best.parent.mkdir(exist_ok=True)
        self.write_config(config)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot make the run folder ({error.strerror}). Choose another "
                "hydra.run.dir."
            ) from error

    def remove_leftovers(self) -> None:
        """Removes what a killed process had begun to write."""
        written = (self.config, self.best, self.last, self.metrics, self.history, self.predictions)
        for path in (*written, self.split, self.report):
            remove_leftovers(path)

    def read_config(self) -> TrainingConfig:
        """The config of the run, see `TrainingConfig.stored`.

        Raises:
            CheckpointError: if this is no run folder, or its config cannot be used.
        """
        try:
            config = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self.path}: not a run folder, for it has no config.yaml. Name the folder that "
                "graphfold train printed."
            ) from error
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise CheckpointError(f"{self.config}: cannot be read. Restore the file.") from error
        if not isinstance(config, dict):
            raise CheckpointError(f"{self.config}: holds no config. Restore the file.")
        return TrainingConfig.stored(config, self.config)

    def write_config(self, config: TrainingConfig) -> None:
        """Writes the config of the run."""
        write_text(self.config, config.to_yaml())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder if need be, and keeps other trainings out of it.

        The processes of one training share the lock, which the first one holds.

        Raises:
            ConfigError: if another training runs in it, it cannot be made, or links in it lead
                elsewhere.
        """
        if not is_first():
            yield
            return
        refuse_address(self.path, "the run folder")
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
        with lock_folder(self.path, _CONTENTS):
            yield

    def _move_earlier(self) -> None:
        earlier = [self.path / name for name in _CONTENTS if (self.path / name).exists()]
        results = (file for path in earlier if path != self.config for file in _files(path))
        if next(results, None) is None:  # it was ended before its first epoch was
            return
        number = 1
        while (aside := self.path / f"earlier-{number}").exists():
            number += 1
        aside.mkdir()
        for item in earlier:
            os.replace(item, aside / item.name)
        print(f"{self.path} held an earlier run: it is now in {aside}. Give resume=auto to go on.")


def _files(path: Path) -> Iterator[Path]:
    """A file itself, or the files in a folder."""
    return (file for file in (path, *path.rglob("*")) if file.is_file())


def find_checkpoint(run: Path) -> Path:
    """The checkpoint that RUN means: the file itself, or the best of a run folder.

    Raises:
        CheckpointError: if there is none.
    """
    if not run.exists():
        raise CheckpointError(f"{run}: no such run folder or checkpoint. Correct the path.")
    if run.is_file():
        return run
    folder = RunFolder(run)
    for path in (folder.best, folder.last):
        if path.is_file():
            return path
    raise CheckpointError(
        f"{run}: no checkpoint in it. Name a run folder, which has checkpoints/best.ckpt, or a "
        "checkpoint file."
    )


#: The file that is locked, in the folder; it names the process and goes with its training.
LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path, contents: Iterable[str] = ()) -> Iterator[None]:
    """Keeps other processes out of a folder.

    Args:
        folder: the folder, which may be a stranger's.
        contents: the names of what is written into it.

    Raises:
        ConfigError: if another process has the lock, which is named, or links in it lead elsewhere.
    """
    refuse_links(folder, (LOCK, *contents))
    with locked(folder / LOCK, lambda owner: _refusal(folder, owner)) as has_lock:
        if not has_lock:
            warnings.warn(
                f"{folder}: cannot be locked on this file system. See to it that nobody else "
                "trains in the folder.",
                stacklevel=4,
            )
        yield


def _refusal(folder: Path, owner: str) -> str:
    return (
        f"{folder}: {owner} is training in this folder. Wait for its end, or choose another "
        "hydra.run.dir."
    )
