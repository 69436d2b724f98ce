"""The files that a configuration names, each with its adapter."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from graphfold.datasets.corpora.corpus import PARTS, Corpus, DataFile, find_files
from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.readers.spec import AdapterSpec, adapter_options
from graphfold.datasets.settings import Paths
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.content_key import refuse_pipe
from graphfold.errors import ConfigError, DataError, did_you_mean
from graphfold.options import option_faults, parameters, refuse_unread
from graphfold.registry import ADAPTERS, import_part


@dataclass(frozen=True)
class DataSource:
    """The source of data: a corpus, or files of one's own.

    Args:
        corpus: the name of a corpus.
        adapter: the name or dotted path of an adapter; not needed with a corpus.
        path: a file of one's own, a list of several, a pattern (`plates/*.csv`) or a folder, or
            this for each part ({"train": ..., "val": ..., "test": ...}).
            With a corpus it is read in place of the corpus's files, as they would be.
        variant: which of a corpus's alternatives; None for the first.
        options: options of the adapter, and of a corpus that is made on the spot.
        siblings: names that are no options, but may be what a misspelt option was meant to be.

    Raises:
        ConfigError: if it names nothing to read, or an unknown corpus, adapter, variant, part or
            option, or an option has a value of the wrong type.
    """

    corpus: str | None = None
    adapter: str | None = None
    path: Paths | Mapping[str, Paths] | None = None
    variant: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    siblings: Collection[str] = ()

    def __post_init__(self) -> None:
        if self.corpus is None and (self.adapter is None or self.path is None):
            raise ConfigError(
                "there is nothing to read. Set data.corpus, or both data.adapter and data.path."
            )
        for name, path in self.path.items() if isinstance(self.path, Mapping) else ():
            if not isinstance(path, str | Path | Sequence):
                raise ConfigError(f"data.path has {path!r} for '{name}'. Give the path of a file.")
            if name not in PARTS:
                raise ConfigError(
                    f"data.path has a file for '{name}'.{did_you_mean(name, PARTS)} The parts are "
                    f"{', '.join(PARTS)}."
                )
        self._refuse_unknown_options()
        self.spec.make()

    @cached_property
    def spec(self) -> AdapterSpec:
        """The adapter with its options."""
        return self._with_options(self._default_spec())

    @property
    def divided_by(self) -> str | None:
        """The option that assigns records to train, val and test; None without one."""
        if isinstance(self.path, Mapping):
            return "data.path"
        return "data.split_column" if self.options.get("split_column") else None

    def check_read(self) -> None:
        """Refuses options that are not read beside `path`, or without a corpus.

        A run that is applied to other files has options of the corpus that it learnt from, so this
        is for new runs alone.

        Raises:
            ConfigError: naming the first of them.
        """
        if self._corpus is None:
            beside, remedy = f"data.adapter={self.adapter}", "Set data.corpus"
            refuse_unread("data.variant", self.variant, None, beside, remedy)
        if isinstance(self.path, Mapping):
            remedy = "Give all records as a list of files"
            column = self.spec.options.get("split_column")
            refuse_unread("data.split_column", column, None, "a file for each part", remedy)
        if self.path is not None and self._make is not None:
            for key, value in self._maker_options.items():
                default, remedy = parameters(self._make)[key].default, "Leave data.path out"
                refuse_unread(f"data.{key}", value, default, "data.path", remedy)

    def files(self, root: Path, cache_dir: Path, every_variant: bool = False) -> list[DataFile]:
        """The files to read.

        Args:
            root: the folder that holds the corpora.
            cache_dir: where a corpus that is made on the spot is kept.
            every_variant: all alternatives of a corpus at once.

        Raises:
            DataError: if a file of the corpus is absent, with the address to get it from; or if no
                file fits a pattern.
        """
        if isinstance(self.path, Mapping):
            return [
                DataFile(path, self.spec, part)
                for part, paths in self.path.items()
                for path in self._expand(paths)
            ]
        if self._corpus is None or self.path is not None:
            return [DataFile(path, self.spec) for path in self._expand(self.path or "")]
        if self._make is not None:
            places = {"root": root} if "root" in parameters(self._make) else {}
            with storing(cache_dir):
                made = self._make(cache_dir, **places, **self._maker_options)
            return [DataFile(path, self.spec, part) for path, part in made]
        files = find_files(self._corpus, root, self.variant, every_variant)
        specs = [self._with_options(file.adapter) for file in files]
        return [  # equal specs as one object, which builds its adapter once
            replace(file, adapter=self.spec if spec == self.spec else spec)
            for file, spec in zip(files, specs, strict=True)
        ]

    def with_inferred_options(self, files: Sequence[DataFile]) -> DataSource:
        """Adds the options that the files decide, see `Adapter.infer_options`."""
        for file in files:
            refuse_pipe(file.path)
        inferred = self.spec.make().infer_options([file.path for file in files])
        return replace(self, options={**self.options, **inferred}) if inferred else self

    def for_scoring(self) -> DataSource:
        """Removes the options that only training reads, see `Adapter.training_options`."""
        absent = dict.fromkeys(ADAPTERS.find(self.spec.name).training_options)
        return replace(self, options={**self.options, **absent})

    def _expand(self, paths: Paths) -> list[Path]:
        expands_folders = ADAPTERS.find(self.spec.name).expands_folders
        return expand(paths, expands_folders, "data.path")

    @cached_property
    def _corpus(self) -> Corpus | None:
        return None if self.corpus is None else find_corpus(self.corpus)

    @cached_property
    def _make(self) -> Callable[..., Any] | None:
        """The function that makes the files of the corpus; None for files that exist."""
        if self._corpus is None or self._corpus.maker is None:
            return None
        function: Callable[..., Any] = import_part(self._corpus.maker, self._corpus.name)
        return function

    @property
    def _maker_options(self) -> dict[str, Any]:
        """The options of that function."""
        names = {} if self._make is None else parameters(self._make)
        return {key: value for key, value in self.options.items() if key in names}

    def _default_spec(self) -> AdapterSpec:
        corpus = self._corpus
        if corpus is None:
            return AdapterSpec(str(self.adapter))
        if self.adapter not in (None, corpus.adapter.name):
            raise ConfigError(
                f"corpus {corpus.name} is read by the {corpus.adapter.name} adapter, not by "
                f"'{self.adapter}'. Leave out data.corpus or data.adapter."
            )
        return corpus.spec(self.variant)

    def _with_options(self, spec: AdapterSpec) -> AdapterSpec:
        """Adds the options that the adapter accepts."""
        accepted = adapter_options(spec.name)
        changed = {key: value for key, value in self.options.items() if key in accepted}
        options = {**spec.options, **changed}
        if "target_columns" in changed and "units" in spec.options and "units" not in changed:
            names = changed["target_columns"]  # of other targets, or of some of the corpus's
            options["units"] = {k: u for k, u in spec.options["units"].items() if k in names}
        return AdapterSpec(spec.name, options)

    def _refuse_unknown_options(self) -> None:
        """Refuses an unknown option; unset (null) it may stand in any config."""
        name, faults = self._default_spec().name, []
        accepted = adapter_options(name)
        if self._make is not None:
            names = parameters(self._make)
            places: dict[str, Any] = {k: Path() for k in ("cache_dir", "root") if k in names}
            options = {**places, **self._maker_options}
            faults += option_faults(f"corpus {self.corpus}", self._make, options)
            accepted += [key for key in names if key not in places]
        faults += [
            f"data has no option '{key}'.{did_you_mean(key, [*accepted, *self.siblings])} With the "
            f"{name} adapter it has: {', '.join(accepted) or 'none'}."
            for key, value in self.options.items()
            if key not in accepted and value is not None
        ]
        if faults:
            raise ConfigError("\n".join(faults))


def expand(paths: Paths, expands_folders: bool, option: str) -> list[Path]:
    """The files of a list, of the patterns and of the folders in it.

    Args:
        paths: the list, or one of its items.
        expands_folders: whether a folder means the files in it, see `Adapter`.
        option: the option that gives it, for messages.

    Raises:
        DataError: if no file fits a pattern, or none is in a folder.
    """
    if not isinstance(paths, str | Path):
        return [file for path in paths for file in expand(path, expands_folders, option)]
    path = Path(paths).expanduser()
    if os.path.isdir(path) and expands_folders:
        return _files_in(path, option)
    if not _is_pattern(path):
        return [path]
    files = [Path(name) for name in sorted(glob(str(path), recursive=True))]
    if not files:
        raise DataError.in_file(path, f"no file has such a name. Correct {option}.")
    return files


def fixed_part(path: Path) -> Path:
    """The folder that holds all files which `expand` lists for a path."""
    path = path.expanduser()
    while _is_pattern(path):
        path = path.parent
    return path if os.path.isdir(path) else path.parent


def _is_pattern(path: Path) -> bool:
    return has_magic(str(path)) and not os.path.exists(path)


#: Files without records in a Parquet data set, written by Spark, Hive and Arrow.
MARKS = ("_SUCCESS", "_metadata", "_common_metadata")


def _files_in(folder: Path, option: str) -> list[Path]:
    """The files of a folder and of its sub-folders, sorted; no hidden files, no `MARKS`."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in MARKS
        and "/." not in f"/{path.relative_to(folder).as_posix()}"
    ]
    if not files:
        raise DataError.in_file(folder, f"no file is in it. Correct {option}.")
    return files
