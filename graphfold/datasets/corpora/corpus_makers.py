"""Functions that make the files of corpora without a download: ListOps, and molecules of rdkit.

A maker takes the cache folder and its own options, and returns each file with its part. One that
takes `root` as well reads corpora from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from graphfold.datasets.corpora.corpus import PARTS, find_files
from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.files.text_files import read_lines
from graphfold.datasets.readers import listops
from graphfold.datasets.readers.listops import PUBLISHED_POOL, ListOpsGenerator, write_listops
from graphfold.datasets.storage.content_key import file_hash
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
    """ListOps files with the published distribution, written under `cache_dir`.

    Args:
        cache_dir: the folder; equal options lead to the same files.
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
    return _write_once(cache_dir / "listops_generated", sizes, generator_seed, generator)


def make_published_listops(
    cache_dir: Path,
    root: Path,
    train_size: int = 88_000,
    val_size: int = 2_000,
    generator_seed: int = 0,
    pool: int = PUBLISHED_POOL,
) -> list[MadeFile]:
    """ListOps to train on, written under `cache_dir`, and the published test set of `root`.

    Args:
        cache_dir: the folder; equal options lead to the same files.
        root: the folder that holds the corpora.
        train_size: how many expressions to train on.
        val_size: how many to choose the model by. No expression is in two parts, and none of the
            published ones in either.
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
    folder, generator = cache_dir / "listops_d20s", ListOpsGenerator(pool=pool)
    files = _write_once(folder, sizes, generator_seed, generator, published.path)
    return [*files, (published.path, "test")]


def _sizes(*sizes: int) -> dict[str, int]:
    """The size of each of the first parts; raises ConfigError for one that is not positive."""
    by_part = dict(zip(PARTS, sizes, strict=False))
    for part, size in by_part.items():
        if size < 1:
            raise ConfigError(f"data.{part}_size is {size}. Give at least 1.")
    return by_part


def make_chembl(cache_dir: Path) -> list[MadeFile]:
    """The table of molecules that `write_chembl` makes of rdkit's files.

    Raises:
        DataError: if this rdkit does not carry them.
    """
    from graphfold.datasets.corpora.chembl import write_chembl

    return [(write_chembl(cache_dir / f"chembl-rdkit-{version('rdkit')}"), None)]


def _write_once(
    folder: Path,
    sizes: Mapping[str, int],
    seed: int,
    generator: ListOpsGenerator,
    published: Path | None = None,
) -> list[MadeFile]:
    """The files of the parts, in a folder named after a hash of the arguments and the code.

    Args:
        folder: the folder without this hash.
        sizes: the number of expressions of each part.
        seed: of the expressions.
        generator: draws them.
        published: a file whose expressions are in no part; None for none.
    """
    code = file_hash(Path(listops.__file__))
    facts = [repr(generator), sizes, seed, code, published and file_hash(published)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    folder = folder.with_name(f"{folder.name}-{key[:16]}")
    paths = {part: folder / f"{part}.tsv" for part in sizes}
    if not all(path.exists() for path in paths.values()):
        lines = read_lines(published) if published is not None else ()
        expressions = {line.partition("\t")[2] for _, line in lines}
        write_listops(folder, sizes, seed, generator, without=expressions)
    return [(path, part) for part, path in paths.items()]
