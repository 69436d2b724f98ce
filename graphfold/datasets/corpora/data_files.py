"""From a configuration to the files to read, each with its adapter."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import Any

from graphfold.datasets.corpora.corpus import PARTS, Corpus, DataFile, find_files
from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.settings import Paths
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.content_key import refuse_pipe
from graphfold.errors import ConfigError, DataError, did_you_mean
from graphfold.options import option_faults, parameters, refuse_unread
from graphfold.registry import ADAPTERS


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
        """The option by which the user says the part of each record, if one does."""
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
        corpus = self._corpus()
        if corpus is None:
            beside, remedy = f"data.adapter={self.adapter}", "Set data.corpus"
            refuse_unread("data.variant", self.variant, None, beside, remedy)
        if isinstance(self.path, Mapping):
            remedy = "Give all records as a list of files"
            column = self.spec.options.get("split_column")
            refuse_unread("data.split_column", column, None, "a file for each part", remedy)
        if corpus is not None and corpus.maker is not None and self.path is not None:
            options = parameters(_function(corpus.maker))
            for key, value in self._maker_options(corpus.maker).items():
                default, remedy = options[key].default, "Leave data.path out"
                refuse_unread(f"data.{key}", value, default, "data.path", remedy)

    def files(self, root: Path, cache_dir: Path, every_variant: bool = False) -> list[DataFile]:
        """The files to read.

        Args:
            root: the folder that holds the corpora.
            cache_dir: where a corpus that is made on the spot is kept.
            every_variant: all alternatives of a corpus at once.

        Raises:
            DataError: if a file of the corpus is absent, and says where it is to be had; or if no
                file fits a pattern.
        """
        if isinstance(self.path, Mapping):
            return [
                DataFile(path, self.spec, part)
                for part, paths in self.path.items()
                for path in self._expand(paths)
            ]
        corpus = self._corpus()
        if corpus is None or self.path is not None:
            return [DataFile(path, self.spec) for path in self._expand(self.path or "")]
        if corpus.maker is not None:
            make, own = _function(corpus.maker), self._maker_options(corpus.maker)
            if "root" in parameters(make):
                own["root"] = root
            with storing(cache_dir):
                made = make(cache_dir, **own)
            return [DataFile(path, self.spec, part) for path, part in made]
        found = find_files(corpus, root, self.variant, every_variant)
        return [DataFile(f.path, self._spec_of(f), f.part) for f in found]

    def with_inferred_options(self, files: Sequence[DataFile]) -> DataSource:
        """The same with the options that the files decide, see `Adapter.infer_options`."""
        for file in files:
            refuse_pipe(file.path)
        inferred = self.spec.make().infer_options([file.path for file in files])
        return replace(self, options={**self.options, **inferred}) if inferred else self

    def for_scoring(self) -> DataSource:
        """The same without what only training reads, see `Adapter.training_options`."""
        absent = dict.fromkeys(ADAPTERS.find(self.spec.name).training_options)
        return replace(self, options={**self.options, **absent})

    def _expand(self, paths: Paths) -> list[Path]:
        expands_folders = ADAPTERS.find(self.spec.name).expands_folders
        return expand(paths, expands_folders, "data.path")

    def _corpus(self) -> Corpus | None:
        return None if self.corpus is None else find_corpus(self.corpus)

    def _default_spec(self) -> AdapterSpec:
        corpus = self._corpus()
        if corpus is None:
            return AdapterSpec(str(self.adapter))
        if self.adapter not in (None, corpus.adapter.name):
            raise ConfigError(
                f"corpus {corpus.name} is read by the {corpus.adapter.name} adapter, not by "
                f"'{self.adapter}'. Leave out data.corpus or data.adapter."
            )
        return corpus.spec(self.variant)

    def _spec_of(self, file: DataFile) -> AdapterSpec:
        """The adapter of a file of a corpus; that of the source unless they differ."""
        spec = self._with_options(file.adapter)
        return self.spec if spec == self.spec else spec

    def _with_options(self, spec: AdapterSpec) -> AdapterSpec:
        """The spec with those of the user's options that are the adapter's."""
        known = parameters(ADAPTERS.find(spec.name))
        own = {key: value for key, value in self.options.items() if key in known}
        options = {**spec.options, **own}
        if "target_columns" in own and "units" in spec.options and "units" not in own:
            names = own["target_columns"]  # others than those of the corpus, or some of them
            options["units"] = {k: u for k, u in spec.options["units"].items() if k in names}
        return AdapterSpec(spec.name, options)

    def _maker_options(self, maker: str) -> dict[str, Any]:
        names = parameters(_function(maker))
        return {key: value for key, value in self.options.items() if key in names}

    def _refuse_unknown_options(self) -> None:
        """Refuses an unknown option; unset (null) it may stand in any config."""
        corpus, name = self._corpus(), self._default_spec().name
        known = [*parameters(ADAPTERS.find(name))]
        faults = []
        if corpus is not None and corpus.maker is not None:
            make, own = _function(corpus.maker), self._maker_options(corpus.maker)
            places: dict[str, Any] = {
                key: Path() for key in ("cache_dir", "root") if key in parameters(make)
            }
            faults += option_faults(f"corpus {corpus.name}", make, {**places, **own})
            known += [key for key in parameters(make) if key not in places]
        faults += [
            f"data has no option '{key}'.{did_you_mean(key, [*known, *self.siblings])} With the "
            f"{name} adapter it has: {', '.join(known) or 'none'}."
            for key, value in self.options.items()
            if key not in known and value is not None
        ]
        if faults:
            raise ConfigError("\n".join(faults))


def expand(paths: Paths, expands_folders: bool, option: str) -> list[Path]:
    """The files of a list, of the patterns and of the folders in it.

    Args:
        paths: the list, or one of its items.
        expands_folders: whether a folder stands for the files in it, see `Adapter`.
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
    found = [Path(name) for name in sorted(glob(str(path), recursive=True))]
    if not found:
        raise DataError(f"{path}: no file has such a name. Correct {option}.", path=str(path))
    return found


def fixed_part(path: Path) -> Path:
    """The folder below which the files are that `expand` finds."""
    path = path.expanduser()
    if os.path.isdir(path):
        return path
    while _is_pattern(path):
        path = path.parent
    return path if os.path.isdir(path) else path.parent


def _is_pattern(path: Path) -> bool:
    return has_magic(str(path)) and not os.path.exists(path)


#: Files without records beside those of a Parquet data set, written by Spark, Hive and Arrow.
MARKS = ("_SUCCESS", "_metadata", "_common_metadata")


def _files_in(folder: Path, option: str) -> list[Path]:
    """The files of a folder and of those in it, by their names.

    Hidden ones are left out, and what a Parquet data set has beside its files.
    """
    there = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in MARKS)
    found = [path for path in there if "/." not in f"/{path.relative_to(folder).as_posix()}"]
    if not found:
        raise DataError(f"{folder}: no file is in it. Correct {option}.", path=str(folder))
    return found


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
