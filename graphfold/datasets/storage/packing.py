"""Packing: a file is read through its adapter once, and from its stored copy afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, ReadResult
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.content_key import (
    InputState,
    content_hash,
    copy_name,
    fingerprint,
    input_states,
    refuse_change,
)
from graphfold.datasets.storage.reading import Chunk, cut_file, read_chunks
from graphfold.datasets.storage.store import StoreWriter, open_graphs, read_manifest
from graphfold.errors import DataError, LeftOut, RecordError, count_of
from graphfold.files import locked
from graphfold.progress import shown

#: The version of the layout of stored graphs; copies of other versions are made again.
STORAGE_FORMAT = 8


@dataclass(frozen=True, eq=False)
class PackedCorpus:
    """The graphs of one file in their stored copy.

    Args:
        path: the file that was read.
        dag: its usable graphs, in file order, mapped into memory.
        skipped: an error for each other record.
        content: the sha256 of the input (see `content_hash`).
        stored: the folder of the stored copy.
    """

    path: Path
    dag: TypedDAG
    skipped: tuple[RecordError, ...]
    content: str
    stored: Path


@dataclass(frozen=True)
class _Source:
    """A file to pack.

    Args:
        adapter: the adapter that reads it.
        path: the file or folder.
        copies: the beginning of the paths of its stored copies, old and new.
        stored: the folder of the current copy.
        content: its sha256.
        states: the states of its files before they were hashed.
    """

    adapter: Adapter
    path: Path
    copies: Path
    stored: Path
    content: str
    states: Sequence[InputState]

    @staticmethod
    def of(spec: AdapterSpec, path: Path, cache_dir: Path) -> _Source:
        adapter = spec.make()
        states = input_states(adapter, [path])
        content = content_hash(adapter, path)
        copies = cache_dir / copy_name(spec, path)
        key = fingerprint(adapter, spec, content, STORAGE_FORMAT)[:16]
        stored = copies.with_name(f"{copies.name}-{key}.graphs")
        return _Source(adapter, path, copies, stored, content, states)


def pack(
    spec: AdapterSpec,
    path: Path,
    cache_dir: Path,
    on_error: str = "raise",
    num_workers: int | None = None,
) -> PackedCorpus:
    """The graphs of one file, see `pack_files`."""
    return pack_files([(spec, path)], cache_dir, on_error, num_workers)[0]


def pack_files(
    files: Sequence[tuple[AdapterSpec, Path]],
    cache_dir: Path,
    on_error: str = "raise",
    num_workers: int | None = None,
) -> list[PackedCorpus]:
    """The graphs of each file: from its current stored copy, else read and stored.

    The name of a copy ends in a hash of the content of the input, the adapter (its code, options
    and libraries) and the storage format. A copy is written beside and renamed, and out-of-date
    copies are removed. Of several processes that pack the same file at once, one does and the
    others wait for it. After an interruption the files that were packed before it stay.

    Args:
        files: for each the adapter with its options, and the file or folder.
        cache_dir: the folder of stored copies; made if need be.
        on_error: "raise" stops at the first bad record; "skip" lists bad records.
        num_workers: processes that parse; None for one per core.

    Raises:
        ConfigError: if there is no such adapter or option.
        DataError: if the input cannot be read as a whole or changes while it is read, or nothing
            can be stored.
        RecordError: for the first bad record, with its line, under "raise".
    """
    sources = [_Source.of(spec, path, cache_dir) for spec, path in files]
    absent = {source.stored: source for source in sources if _load(source) is None}
    if absent:  # all processes take the locks in the same order
        _store_all(sorted(absent.values(), key=lambda s: str(s.copies)), on_error, num_workers)
    return [_read_back(source, on_error) for source in sources]


def refuse_empty(path: Path, results: Sequence[PackedCorpus | ReadResult]) -> None:
    """Raises DataError if no file has a usable record; it quotes the first bad one.

    Args:
        path: the first file.
        results: the graphs of each file.
    """
    if any(result.dag.num_graphs for result in results):
        return
    skipped = [error for result in results for error in result.skipped]
    bad = [error for error in skipped if not isinstance(error, LeftOut)]
    first, remedy = "", "Correct the file, or the options of its adapter."
    if bad:
        first = f" The first bad one is {bad[0].place_and_fault}."
    elif skipped:
        first = f" The first one is {skipped[0].place_and_fault}."
        remedy = skipped[0].remedy or remedy
    raise DataError.in_file(
        path,
        f"no usable record is left; {count_of(len(skipped), 'record')} "
        f"{'was' if len(skipped) == 1 else 'were'} left out.{first} {remedy}",
    )


def _store_all(sources: Sequence[_Source], on_error: str, num_workers: int | None) -> None:
    """Reads files, their chunks shared out among the processes, and stores one after the other."""
    locks: dict[Path, ExitStack] = {}

    def chunks() -> Iterator[Chunk]:
        for source in sources:
            lock = locks[source.stored] = stack.enter_context(ExitStack())
            with storing(source.stored.parent):
                source.stored.parent.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(source.copies.with_name(f".{source.copies.name}.lock")))
            if _load(source) is None:
                yield from cut_file(source.adapter, source.path)
            else:  # another process was quicker
                lock.close()

    doing = f"packing {sources[0].path.name}" if len(sources) == 1 else "packing files"
    source_of = {(source.adapter, source.path): source for source in sources}
    with ExitStack() as stack:
        results = read_chunks(chunks(), on_error, num_workers)
        pieces = shown(results, doing, lambda piece: len(piece[0].records))
        for file, group in groupby(pieces, lambda piece: (piece[0].adapter, piece[0].path)):
            source = source_of[file]
            _store(source, (result for _, result in group))
            locks[source.stored].close()


def _store(source: _Source, results: Iterator[ReadResult]) -> None:
    """Writes a copy beside the others and renames it; removes old and unfinished ones."""
    folder, name = source.stored.parent, source.copies.name
    with storing(folder):
        for leftover in folder.glob(f".packing-{name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        growing = tempfile.TemporaryDirectory(prefix=f".packing-{name}-", dir=folder)
    with growing, ExitStack() as stack:
        copy, skipped = Path(growing.name) / "copy", list[list[Any]]()
        with storing(folder):
            copy.mkdir()
            writer = stack.enter_context(StoreWriter(source.adapter.schema, copy))
        for result in results:
            skipped += map(_facts, result.skipped)
            with storing(folder):
                writer.append(result.dag)
        refuse_change(source.states, input_states(source.adapter, [source.path]))
        with storing(folder):
            writer.finish(path=str(source.path), content=source.content, skipped=skipped)
            for old in folder.glob(f"{name}-*.graphs"):
                shutil.rmtree(old)
            os.rename(copy, source.stored)


def _read_back(source: _Source, on_error: str) -> PackedCorpus:
    corpus = _load(source)
    if corpus is None:
        raise DataError.in_file(
            source.stored,
            "the stored copy cannot be read back. Check the disk, or set "
            "data.cache_dir to another folder.",
        )
    for error in corpus.skipped if on_error == "raise" else ():
        if not isinstance(error, LeftOut):
            raise error
    return corpus


def _load(source: _Source) -> PackedCorpus | None:
    """The stored copy, or None if it is absent or damaged."""
    path, stored = source.path, source.stored
    try:
        manifest = read_manifest(stored)
        dag = open_graphs(stored, source.adapter.schema, (str(path),))
        skipped = tuple(_error(facts, manifest["path"], path) for facts in manifest["skipped"])
    except (OSError, ValueError, KeyError):
        return None
    return PackedCorpus(path, dag, skipped, source.content, stored)


def _facts(error: RecordError) -> list[Any]:
    return [isinstance(error, LeftOut), error.fault, error.remedy, error.path, error.line]


def _error(facts: Sequence[Any], old_path: str, path: Path) -> RecordError:
    """A stored error, with the path that the caller gives the input now."""
    is_left_out, fault, remedy, place, line = facts
    kind = LeftOut if is_left_out else RecordError
    return kind(fault, remedy, str(path) if place == old_path else place, line)
