"""Packing: a file is read through its adapter once, and from its stored copy ever after."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.cache import note_use, remove_oldest, storing
from graphfold.datasets.storage.carried import CarriedGraphs, carry
from graphfold.datasets.storage.fingerprint import cache_name, content_hash, fingerprint
from graphfold.datasets.storage.graph_file import GraphFileWriter, read_graphs, read_metadata
from graphfold.datasets.storage.reading import read_chunks
from graphfold.errors import DataError, LeftOut, RecordError, count_of
from graphfold.progress import shown

#: The version of the layout of stored graphs; another one is read from the input again.
STORAGE_FORMAT = 5


@dataclass(frozen=True, eq=False)
class PackedCorpus:
    """The graphs of one file, memory-mapped from their stored copy.

    Args:
        path: the file that was read.
        dag: its usable graphs, in file order.
        skipped: why the other records are not among them.
        content: the sha256 of the input (see `fingerprint.content_hash`).
        fingerprint: the hash of everything that the graphs depend on.
        stored: the file of the stored copy.
    """

    path: Path
    dag: TypedDAG
    skipped: tuple[RecordError, ...]
    content: str
    fingerprint: str
    stored: Path


def pack(
    spec: AdapterSpec,
    path: Path,
    cache_dir: Path,
    on_error: str = "raise",
    num_workers: int | None = None,
) -> PackedCorpus:
    """The graphs of a file: from its stored copy if that is up to date, else read and stored.

    The copy is up to date if the input, the adapter (its code, options and libraries) and the
    storage format are the same. It is written whole or not at all, beside nothing of the user's;
    several processes may pack the same file at once, and the last one's copy stays.

    Args:
        spec: the adapter and its options.
        path: the file or folder to read.
        cache_dir: the folder of stored copies; made if need be.
        on_error: "raise" stops at the first bad record; "skip" lists bad records.
        num_workers: processes that parse; None for one per core.

    Raises:
        ConfigError: if there is no such adapter or option.
        DataError: if the input cannot be read as a whole, or nothing can be stored.
        RecordError: for the first bad record, with its line, under "raise".
    """
    adapter = spec.make()
    content = content_hash(adapter, path)
    facts = {
        "fingerprint": fingerprint(adapter, spec, content, STORAGE_FORMAT),
        "content": content,
        "path": str(path),
    }
    stored = cache_dir / cache_name(adapter, spec, path)
    found = _load(adapter, path, stored, facts)
    if found is None:
        found = _store(adapter, path, stored, facts, on_error, num_workers)
        remove_oldest(cache_dir, stored)
    else:
        note_use(stored)
    if on_error == "raise":
        for error in found.skipped:
            if not isinstance(error, LeftOut):
                raise error
    return found


def refuse_empty(packed: Sequence[PackedCorpus]) -> None:
    """Raises DataError if none of the files has a usable record, with the first bad one."""
    if any(corpus.dag.num_graphs for corpus in packed):
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


def _store(
    adapter: Adapter,
    path: Path,
    stored: Path,
    facts: Mapping[str, Any],
    on_error: str,
    num_workers: int | None,
) -> PackedCorpus:
    """Reads the input, and replaces the stored copy in one step once it can be read back."""
    with storing(stored.parent):
        stored.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".packing-", dir=stored.parent)
    with folder, GraphFileWriter(adapter.schema, Path(folder.name)) as writer:
        skipped: list[RecordError] = []
        chunks = read_chunks(adapter, path, carry, on_error, num_workers)
        for chunk in shown(chunks, f"packing {path.name}", _num_records):
            skipped += chunk.skipped
            chunk.columns["origin"][:, 2] += writer.num_graphs
            with storing(stored.parent):
                writer.append(chunk.columns, chunk.counts, chunk.dictionaries)
        with storing(stored.parent):
            whole = Path(folder.name) / "whole"
            writer.finish(whole, {**facts, "skipped": [_to_dict(error) for error in skipped]})
            found = _load(adapter, path, whole, facts)
            os.replace(whole, stored)  # the map of the old name stays valid
    if found is None:
        raise DataError(
            f"{stored}: the stored copy cannot be read back. Check the disk, or set "
            "data.cache_dir to another folder.",
            path=str(stored),
        )
    return replace(found, stored=stored)


def _num_records(chunk: CarriedGraphs) -> int:
    return len(chunk.counts["node"]) + len(chunk.skipped)


def _load(
    adapter: Adapter, path: Path, stored: Path, facts: Mapping[str, Any]
) -> PackedCorpus | None:
    """The stored copy, or None if it is absent, out of date or damaged."""
    try:
        found = read_metadata(stored)
        if found["fingerprint"] != facts["fingerprint"]:
            return None
        dag = read_graphs(stored, adapter.schema, (str(path),))
    except (OSError, ValueError, KeyError):
        return None
    skipped = tuple(_from_dict(item, found["path"], path) for item in found["skipped"])
    return PackedCorpus(path, dag, skipped, found["content"], found["fingerprint"], stored)


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
