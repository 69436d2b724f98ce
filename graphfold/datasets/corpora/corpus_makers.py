"""The files of corpora that need no download: generated, or out of an installed library.

A maker takes the cache folder and its own options, and returns each file with its part.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from importlib.metadata import version
from pathlib import Path

from graphfold.datasets.adapters import listops, listops_generator
from graphfold.datasets.adapters.listops_generator import ListOpsGenerator, write_listops
from graphfold.datasets.corpora.corpus import PARTS
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
    pool: int = listops_generator.PUBLISHED_POOL,
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
    sizes = dict(zip(PARTS, (train_size, val_size, test_size), strict=True))
    for part, size in sizes.items():
        if size < 1:
            raise ConfigError(f"data.{part}_size is {size}. Give at least 1.")
    generator = ListOpsGenerator(operator_probability, max_arguments, max_depth, max_length, pool)
    code = [file_hash(Path(str(module.__file__))) for module in (listops, listops_generator)]
    key = hashlib.sha256(json.dumps([repr(generator), sizes, generator_seed, code]).encode())
    folder = cache_dir / f"listops_generated-{key.hexdigest()[:16]}"
    paths = {part: folder / f"{part}.tsv" for part in PARTS}
    if not all(path.exists() for path in paths.values()):
        paths = write_listops(folder, sizes, generator_seed, generator)
    return [(path, part) for part, path in paths.items()]


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
    from graphfold.datasets.plans import random_query, sqlite_corpus

    schemas = dict(zip(PARTS, (train_schemas, val_schemas, test_schemas), strict=True))
    code = [file_hash(Path(str(module.__file__))) for module in (random_query, sqlite_corpus)]
    facts = [schemas, queries, generator_seed, sqlite3.sqlite_version, code]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    folder = cache_dir / f"plans_sqlite-{key[:16]}"
    paths = {part: folder / f"{part}.jsonl" for part in PARTS}
    if not all(path.exists() for path in paths.values()):
        paths = sqlite_corpus.write_plans(folder, schemas, queries, generator_seed)
    return [(path, part) for part, path in paths.items()]


def make_reports(
    cache_dir: Path,
    train_size: int = 6_000,
    val_size: int = 1_000,
    test_size: int = 2_000,
    generator_seed: int = 0,
) -> list[MadeFile]:
    """JSON records with a known answer, kept under `cache_dir`; see `write_reports`.

    Args:
        cache_dir: where they are kept; the same options find the same files again.
        train_size: how many records to train on.
        val_size: how many to choose the model by.
        test_size: how many to measure it by.
        generator_seed: of the records; not that of the run.

    Returns:
        The path and the part of each file.

    Raises:
        ConfigError: if a size is not positive.
    """
    from graphfold.datasets.json_records import generated

    sizes = dict(zip(PARTS, (train_size, val_size, test_size), strict=True))
    code = file_hash(Path(str(generated.__file__)))
    key = hashlib.sha256(json.dumps([sizes, generator_seed, code]).encode()).hexdigest()
    folder = cache_dir / f"json_reports-{key[:16]}"
    paths = {part: folder / f"{part}.jsonl" for part in PARTS}
    if not all(path.exists() for path in paths.values()):
        paths = generated.write_reports(folder, sizes, generator_seed)
    return [(path, part) for part, path in paths.items()]


def make_chembl(cache_dir: Path) -> list[MadeFile]:
    """The table of molecules that rdkit carries; `chembl.write_chembl` says what is in it.

    Raises:
        DataError: if this rdkit does not carry it.
    """
    from graphfold.datasets.corpora.chembl import write_chembl

    return [(write_chembl(cache_dir / f"chembl-rdkit-{version('rdkit')}"), None)]
