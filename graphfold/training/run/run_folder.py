"""RunFolder: the files of a run; a lock admits one training at a time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


class RunFolder:
    """The files of a run.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.best = path / "checkpoints" / "best.ckpt"
        self.last = path / "checkpoints" / "last.ckpt"
        self.metrics = path / "metrics.json"
        self.history = path / "metrics.csv"
        self.predictions = path / "predictions.csv"
        self.split = path / "split.csv"
        self.report = path / "report.html"

    def members(self, count: int) -> list[RunFolder]:
        """The folders of the members of an ensemble, members/1, ...; of one model, this one."""
        if count == 1:
            return [self]
        return [RunFolder(self.path / "members" / str(n)) for n in range(1, count + 1)]

    def create(self, config: TrainingConfig, anew: bool = False) -> None:
        """Prepares the existing folder for a run and writes the config.

        Args:
            config: the config of the run.
            anew: whether the run of the folder begins again; otherwise another run in the folder
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
        """Removes temporary files of a killed process."""
        written = (self.config, self.best, self.last, self.metrics, self.history, self.predictions)
        for path in (*written, self.split, self.report):
            remove_leftovers(path)

    def read_config(self) -> TrainingConfig:
        """The config of the run, see `TrainingConfig.stored`.

        Raises:
            CheckpointError: if this is no run folder, or its config is invalid.
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
        """Makes the folder, and locks it against other trainings.

        The first process of a training holds the lock for all its processes.

        Raises:
            ConfigError: if another training holds the lock, the folder cannot be made, or links in
                it lead elsewhere.
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
        if next(results, None) is None:  # it ended before its first epoch
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
        CheckpointError: if there is no checkpoint.
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


#: The file of the lock, which names the process; removed after training.
LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path, contents: Iterable[str] = ()) -> Iterator[None]:
    """Locks a folder against other processes.

    Args:
        folder: the folder, perhaps of another user.
        contents: the names of the files that will be written there.

    Raises:
        ConfigError: if another process has the lock, or links in the folder lead elsewhere.
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
