"""Named corpora: their files, and how these are found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.errors import ConfigError, DataError, did_you_mean

#: The parts of a split, in order.
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class DataFile:
    """A file to read, with its adapter and its part of a given split."""

    path: Path
    adapter: AdapterSpec
    part: str | None = None


@dataclass(frozen=True)
class CorpusFile:
    """A file (or folder) of a corpus.

    Args:
        name: its path under the corpus's folder.
        part: the part of the given split that it is, or None where the source gives none.
        variant: its name among alternatives; one of them is used at a time.
        options: adapter options for this file alone.
    """

    name: str
    part: str | None = None
    variant: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Corpus:
    """A published corpus.

    Args:
        name: its name, and that of its folder under `data.root`.
        title: a description, with the unit of the targets.
        adapter: how its files are read.
        files: its files; none for a corpus that is generated.
        source: where to get the files.
        maker: of a generated corpus "module:function"; the function takes the cache folder, `root`
            if it reads other corpora, and its own options, and returns a (path, part) for each
            file that it made.
    """

    name: str
    title: str
    adapter: AdapterSpec
    files: tuple[CorpusFile, ...] = ()
    source: str = ""
    maker: str | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its alternatives; the first one is the default."""
        return tuple(file.variant for file in self.files if file.variant is not None)

    def spec(self, variant: str | None = None) -> AdapterSpec:
        """The adapter of a variant, with its options; None is the first variant.

        Raises:
            ConfigError: if the corpus has no such variant.
        """
        if variant is not None and variant not in self.variants:
            raise ConfigError(
                f"corpus {self.name} has no variant '{variant}'."
                f"{did_you_mean(variant, self.variants)} It has: "
                f"{', '.join(self.variants) or 'none'}."
            )
        chosen = variant or next(iter(self.variants), None)
        options = next((file.options for file in self.files if file.variant == chosen), {})
        return AdapterSpec(self.adapter.name, {**self.adapter.options, **options})


def find_files(
    corpus: Corpus, root: Path, variant: str | None = None, every_variant: bool = False
) -> list[DataFile]:
    """The files of a corpus under `root`, gzipped or not.

    Args:
        corpus: the corpus.
        root: the folder that holds the corpora.
        variant: which of its alternatives; None for the first.
        every_variant: all alternatives that exist, at once.

    Raises:
        ConfigError: if the corpus has no such variant.
        DataError: if a file is absent; it says where to get the file.
    """
    corpus.spec(variant)
    present = [f.variant for f in corpus.files if _candidates(corpus, root, f.name)]
    chosen = [variant or next(iter(corpus.variants), None)]
    variants = present if every_variant and present else chosen
    return [
        DataFile(_find(corpus, root, file.name), corpus.spec(file.variant), file.part)
        for file in corpus.files
        if file.variant in (None, *variants)
    ]


def default_root() -> Path:
    """The folder that holds the corpora: the variable GRAPHFOLD_DATA, else ./data."""
    return Path(os.environ.get("GRAPHFOLD_DATA") or "data").expanduser()


@cache
def known_hashes() -> Mapping[str, str]:
    """Path under `data.root` -> sha256 of the published file (in the format of sha256sum)."""
    text = Path(__file__).with_name("corpora.sha256").read_text(encoding="utf-8")
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in text.splitlines())}


def _find(corpus: Corpus, root: Path, name: str) -> Path:
    for candidate in _candidates(corpus, root, name):
        return candidate
    path = root / corpus.name / name
    raise DataError(
        f"{path}: no such file. Get it from {corpus.source}; or set data.root to the folder that "
        f"holds '{corpus.name}'.",
        path=str(path),
        corpus=corpus.name,
    )


def _candidates(corpus: Corpus, root: Path, name: str) -> list[Path]:
    """The existing files of this name, gzipped or not."""
    path = root / corpus.name / name
    names = (path, path.with_name(f"{path.name}.gz"), path.with_name(path.name.removesuffix(".gz")))
    return [candidate for candidate in names if candidate.exists()]
