"""The files of corpora that need no download: generated, or out of an installed library.

A maker takes the cache folder and its own options, and returns each file with its part. One that
takes `root` as well reads corpora from there.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphfold.datasets.corpora.corpus import PARTS, find_files
from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.files.text_files import read_lines
from graphfold.datasets.readers import listops
from graphfold.datasets.readers.listops import PUBLISHED_POOL, ListOpsGenerator, write_listops
from graphfold.datasets.storage.fingerprint import file_hash
from graphfold.errors import ConfigError

MadeFile = tuple[Path, str | None]


def make_listops(
    cache_dir: Path,
    train_size: int = 20_000,
    val_size: int = 1_000,
    test_size: int = 2_000,
    generator_seed: int = 0,
    operator_probability: float = 0.25,
    max_arguments: int = 5,
    max_depth: int = 20,
    max_length: int | None = None,
    pool: int = PUBLISHED_POOL,
) -> list[MadeFile]:
    """ListOps files with the published distribution, kept under `cache_dir`.

    Args:
        cache_dir: where they are kept; the same options find the same files again.
        train_size: how many expressions to train on.
        val_size: how many to choose the model by.
        test_size: how many to measure it by. No expression is in two parts.
        generator_seed: of the expressions; not that of the run, so that runs share a test part.
        operator_probability: see `ListOpsGenerator`, as for the other options.

    Returns:
        The path and the part of each file.

    Raises:
        ConfigError: if a size is not positive, or the options allow too few expressions.
    """
    sizes = _sizes(train_size, val_size, test_size)
    generator = ListOpsGenerator(operator_probability, max_arguments, max_depth, max_length, pool)
    code = file_hash(Path(listops.__file__))
    files = _MadeFiles(
        cache_dir, "listops_generated", ".tsv", [repr(generator), sizes, generator_seed, code]
    )
    if not files.exist:
        write_listops(files.folder, sizes, generator_seed, generator)
    return files.parts


def make_published_listops(
    cache_dir: Path,
    root: Path,
    train_size: int = 88_000,
    val_size: int = 2_000,
    generator_seed: int = 0,
    pool: int = PUBLISHED_POOL,
) -> list[MadeFile]:
    """ListOps to train on, kept under `cache_dir`, and the published test set of `root` beside it.

    Args:
        cache_dir: where they are kept; the same options find the same files again.
        root: the folder that holds the corpora.
        train_size: how many expressions to train on.
        val_size: how many to choose the model by. No expression is in two parts, the published one
            among them.
        generator_seed: of the expressions; not that of the run.
        pool: see `ListOpsGenerator`.

    Returns:
        The path and the part of each file.

    Raises:
        ConfigError: if a size is not positive.
        DataError: if the published test set is absent.
    """
    sizes = _sizes(train_size, val_size)
    (published,) = find_files(find_corpus("listops"), root, "d20s")
    code = file_hash(Path(listops.__file__))
    generator = ListOpsGenerator(pool=pool)
    facts = [repr(generator), sizes, generator_seed, code, file_hash(published.path)]
    files = _MadeFiles(cache_dir, "listops_d20s", ".tsv", facts, PARTS[:2])
    if not files.exist:
        known = {line.partition("\t")[2] for _, line in read_lines(published.path)}
        write_listops(files.folder, sizes, generator_seed, generator, known)
    return [*files.parts, (published.path, "test")]


def make_plans(
    cache_dir: Path,
    train_schemas: int = 80,
    val_schemas: int = 10,
    test_schemas: int = 20,
    queries: int = 50,
    generator_seed: int = 0,
) -> list[MadeFile]:
    """Plans and costs of queries over random databases of SQLite, kept under `cache_dir`.

    Args:
        cache_dir: where they are kept; the same options find the same files again.
        train_schemas: how many databases to train on.
        val_schemas: how many to choose the model by.
        test_schemas: how many to measure it by. No database is in two parts.
        queries: how many queries are asked of each database.
        generator_seed: of the databases and queries; not that of the run.

    Returns:
        The path and the part of each file.

    Raises:
        ConfigError: if a number is not positive.
    """
    from graphfold.datasets.corpora import sqlite_plans

    schemas = dict(zip(PARTS, (train_schemas, val_schemas, test_schemas), strict=True))
    code = file_hash(Path(sqlite_plans.__file__))
    facts = [schemas, queries, generator_seed, sqlite3.sqlite_version, code]
    files = _MadeFiles(cache_dir, "plans_sqlite", ".jsonl", facts)
    if not files.exist:
        sqlite_plans.write_plans(files.folder, schemas, queries, generator_seed)
    return files.parts


def make_chembl(cache_dir: Path) -> list[MadeFile]:
    """The table of molecules that rdkit carries; `chembl.write_chembl` says what is in it.

    Raises:
        DataError: if this rdkit does not carry it.
    """
    from graphfold.datasets.corpora.chembl import write_chembl

    return [(write_chembl(cache_dir / f"chembl-rdkit-{version('rdkit')}"), None)]


class _MadeFiles:
    """The files of a generated corpus, a part each, in a folder that is named by what decides them.

    Args:
        cache_dir: where they are kept.
        name: of the corpus.
        suffix: of the files.
        facts: what decides their content, plain values.
        names: the parts that are made.
    """

    def __init__(
        self,
        cache_dir: Path,
        name: str,
        suffix: str,
        facts: Sequence[Any],
        names: Sequence[str] = PARTS,
    ) -> None:
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        self.folder = cache_dir / f"{name}-{key[:16]}"
        self.paths = {part: self.folder / f"{part}{suffix}" for part in names}

    @property
    def exist(self) -> bool:
        """True if all of them have been made."""
        return all(path.exists() for path in self.paths.values())

    @property
    def parts(self) -> list[MadeFile]:
        """The path and the part of each."""
        return [(path, part) for part, path in self.paths.items()]


def _sizes(*sizes: int) -> dict[str, int]:
    """The size of each of the first parts; raises ConfigError for one that is not positive."""
    by_part = dict(zip(PARTS[: len(sizes)], sizes, strict=True))
    for part, size in by_part.items():
        if size < 1:
            raise ConfigError(f"data.{part}_size is {size}. Give at least 1.")
    return by_part
