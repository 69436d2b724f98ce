"""Packing: files are read through their adapters once, and from stored copies ever after."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from graphfold.dag import Schema, TypedDAG
from graphfold.datasets.adapter import Adapter
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.cache import (
    note_use,
    packing_folder,
    remove_oldest,
    storing,
    tidy_up,
)
from graphfold.datasets.storage.carried import CarriedGraphs, carry
from graphfold.datasets.storage.fingerprint import (
    InputState,
    cache_name,
    content_hash,
    fingerprint,
    input_states,
    refuse_change,
)
from graphfold.datasets.storage.graph_file import (
    GraphFile,
    GraphFileWriter,
    StoredGraphs,
    read_metadata,
)
from graphfold.datasets.storage.reading import (
    available_cores,
    in_processes,
    pickled_call,
    read_chunks,
)
from graphfold.errors import DataError, LeftOut, RecordError, SchemaError, count_of
from graphfold.progress import shown

#: The version of the layout of stored graphs; another one is read from the input again.
STORAGE_FORMAT = 6

#: From so many files for each process on, a file is packed by one process.
MANY_FILES = 2


@dataclass(frozen=True, eq=False)
class PackedCorpus:
    """The graphs of one file in their stored copy.

    Args:
        path: the file that was read.
        schema: of its graphs.
        graphs: its usable graphs, in file order.
        skipped: why the other records are not among them.
        content: the sha256 of the input (see `fingerprint.content_hash`).
        fingerprint: the hash of everything that the graphs depend on.
        stored: the file of the stored copy.
    """

    path: Path
    schema: Schema
    graphs: GraphFile
    skipped: tuple[RecordError, ...]
    content: str
    fingerprint: str
    stored: Path

    @cached_property
    def dag(self) -> TypedDAG:
        """All graphs in memory."""
        return join([self], is_whole=True).whole()


@dataclass(frozen=True)
class Source:
    """A file to pack, and all that its stored copy depends on.

    Args:
        adapter: what reads it.
        path: the file or folder.
        stored: the file of the stored copy.
        facts: what the copy notes: its path, and the hashes by which it is known.
        states: those of its files before they were hashed.
    """

    adapter: Adapter
    path: Path
    stored: Path
    facts: Mapping[str, str]
    states: Sequence[InputState]

    @staticmethod
    def of(spec: AdapterSpec, path: Path, cache_dir: Path) -> Source:
        """The file of a path, read by the adapter of a spec, with a copy in `cache_dir`.

        Raises:
            ConfigError: if there is no such adapter or option.
            DataError: if the file cannot be read.
        """
        adapter = spec.make()
        states = input_states(adapter, [path])
        content = content_hash(adapter, path)
        facts = {
            "fingerprint": fingerprint(adapter, spec, content, STORAGE_FORMAT),
            "content": content,
            "path": str(path),
        }
        return Source(adapter, path, cache_dir / cache_name(adapter, spec, path), facts, states)

    @property
    def is_packed(self) -> bool:
        """True if there is a copy that says it is up to date."""
        with suppress(OSError, ValueError, KeyError):
            return bool(read_metadata(self.stored)["fingerprint"] == self.facts["fingerprint"])
        return False


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
    """The graphs of each file: from its stored copy if that is up to date, else read and stored.

    The copy is up to date if the input, the adapter (its code, options and libraries) and the
    storage format are the same. It is written whole or not at all, beside nothing of the user's;
    of several processes that pack the same file at once, one does and the others wait for it.

    Files are packed one after the other, each by all processes, or, where there are many, each by a
    process of its own. Those that were packed before the work was interrupted stay packed.

    Args:
        files: for each the adapter with its options, and the file or folder.
        cache_dir: the folder of stored copies; made if need be.
        on_error: "raise" stops at the first bad record; "skip" lists bad records.
        num_workers: processes that parse; None for one per core.

    Raises:
        ConfigError: if there is no such adapter or option.
        DataError: if the input cannot be read as a whole or changes meanwhile, or nothing can be
            stored.
        RecordError: for the first bad record, with its line, under "raise".
    """
    sources = [Source.of(spec, path, cache_dir) for spec, path in files]
    absent = [source for source in sources if not source.is_packed]
    workers = available_cores() if num_workers is None else num_workers
    if workers > 1 and len(absent) >= MANY_FILES * workers:
        calls = (
            (s.path, pickled_call(s.adapter, s.path, _store_alone, s, on_error)) for s in absent
        )
        packing = in_processes(iter(calls), workers, lambda path: path)
        for _ in shown(packing, "packing files", lambda done: done[1]):
            pass
    packed = [_load(source) or _store(source, on_error, num_workers) for source in sources]
    if absent:
        for source in sources:
            tidy_up(source.stored)
        remove_oldest(cache_dir, {source.stored for source in sources})
    for corpus in packed:
        note_use(corpus.stored)
        for error in corpus.skipped if on_error == "raise" else ():
            if not isinstance(error, LeftOut):
                raise error
    return packed


def join(packed: Sequence[PackedCorpus], is_whole: bool) -> StoredGraphs:
    """The graphs of all files as one corpus, see `StoredGraphs`.

    Raises:
        SchemaError: if their schemas differ.
    """
    schema = packed[0].schema
    if any(corpus.schema != schema for corpus in packed):
        raise SchemaError("graphs of different schemas cannot be collated. Convert one of them.")
    names = [str(corpus.path) for corpus in packed]
    return StoredGraphs([corpus.graphs for corpus in packed], schema, names, is_whole)


def refuse_empty(packed: Sequence[PackedCorpus]) -> None:
    """Raises DataError if none of the files has a usable record, with the first bad one."""
    if any(corpus.graphs.num_graphs for corpus in packed):
        return
    path, skipped = packed[0].path, [error for corpus in packed for error in corpus.skipped]
    bad = [error for error in skipped if not isinstance(error, LeftOut)]
    first, remedy = "", "Correct the file, or the options of its adapter."
    if bad:
        first = f" The first bad one is {bad[0].place_and_fault}."
    elif skipped:
        first = f" The first one is {skipped[0].place_and_fault}."
        remedy = skipped[0].remedy or remedy
    raise DataError(
        f"{path}: no usable record is left; {count_of(len(skipped), 'record')} "
        f"{'was' if len(skipped) == 1 else 'were'} left out.{first} {remedy}",
        path=str(path),
    )


def _store_alone(source: Source, on_error: str) -> int:
    """Packs a file in a process of its own; returns the number of its records."""
    packed = _store(source, on_error, 0)
    return packed.graphs.num_graphs + len(packed.skipped)


def _store(source: Source, on_error: str, num_workers: int | None) -> PackedCorpus:
    """Reads the input, and replaces the stored copy in one step once it can be read back."""
    path, stored = source.path, source.stored
    with ExitStack() as stack:
        with storing(stored.parent):
            folder = stack.enter_context(packing_folder(stored))
        found = _load(source)
        if found is not None:  # another process was quicker
            return found
        writer = stack.enter_context(GraphFileWriter(source.adapter.schema, folder))
        skipped: list[RecordError] = []
        chunks = read_chunks(source.adapter, path, carry, on_error, num_workers)
        for chunk in shown(chunks, f"packing {path.name}", _num_records):
            skipped += chunk.skipped
            chunk.columns["origin"][:, 2] += writer.num_graphs
            with storing(stored.parent):
                writer.append(chunk.columns, chunk.counts, chunk.dictionaries)
        refuse_change(source.states, input_states(source.adapter, [path]))
        with storing(stored.parent):
            whole = replace(source, stored=folder / "whole")
            errors = [_to_dict(error) for error in skipped]
            writer.finish(whole.stored, {**source.facts, "skipped": errors})
            found = _load(whole)
            os.replace(whole.stored, stored)  # who reads the old one keeps it
    if found is None:
        raise DataError(
            f"{stored}: the stored copy cannot be read back. Check the disk, or set "
            "data.cache_dir to another folder.",
            path=str(stored),
        )
    return replace(found, stored=stored)


def _num_records(chunk: CarriedGraphs) -> int:
    return len(chunk.counts["node"]) + len(chunk.skipped)


def _load(source: Source) -> PackedCorpus | None:
    """The stored copy, or None if it is absent, out of date or damaged."""
    path, stored = source.path, source.stored
    try:
        found = read_metadata(stored)
        if found["fingerprint"] != source.facts["fingerprint"]:
            return None
        graphs = GraphFile(stored)
    except DataError:
        raise
    except (OSError, ValueError, KeyError):
        return None
    skipped = tuple(_from_dict(item, found["path"], path) for item in found["skipped"])
    return PackedCorpus(
        path, source.adapter.schema, graphs, skipped, found["content"], found["fingerprint"], stored
    )


def _to_dict(error: RecordError) -> dict[str, Any]:
    return {
        "left_out": isinstance(error, LeftOut),
        "fault": error.fault,
        "remedy": error.remedy,
        "path": error.path,
        "line": error.line,
    }


def _from_dict(item: Mapping[str, Any], old_path: str, path: Path) -> RecordError:
    """A stored reason, which names the input as the caller does now."""
    kind = LeftOut if item["left_out"] else RecordError
    place = str(path) if item["path"] == old_path else item["path"]
    return kind(item["fault"], item["remedy"], place, item["line"])
