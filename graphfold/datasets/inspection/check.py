"""Reads data with its adapter, holds the adapter to its promises, and says what is in the data."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from graphfold.dag import TypedDAG, collate, from_networkx, select, split, to_networkx, validate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Adapter, count_changed, read_records
from graphfold.datasets.corpora.corpus import DataFile
from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.data_card import describe_graphs, is_published
from graphfold.datasets.inspection.graph_hash import repeated_molecules
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.packing import PackedCorpus, pack_files, refuse_empty
from graphfold.errors import ConfigError, SchemaError, did_you_mean
from graphfold.registry import ADAPTERS, is_path

#: How many records are read twice, and how many graphs make a detour through networkx.
_SAMPLE, _FEW = 256, 3


def check_data(
    name: str,
    path: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Reads all records of a corpus or a file, checks them, and counts what is in them.

    Checked are the graphs against the format and their schema, that the stored copy equals what was
    read, that reading twice gives the same, and that a few graphs survive a detour through
    networkx. The packed copy is thrown away.

    Args:
        name: a corpus (all its files are read, of all variants), or an adapter.
        path: the file to read; with a corpus, in place of its files.
        settings: options of the adapter and keys of the config group `data`.

    Returns:
        Plain values: `records` (usable ones), `splits` (the same by part of the given split, "all"
        where there is none), `skipped`, `reasons` (a list of {"file", "line", "reason"}), `nodes`,
        `records_per_second` (reading and storing), `peak_mb` (the largest resident memory of this
        process or of a worker, in MiB), `files`, the facts of `data_card.describe_graphs`, and for
        molecules `repeated_molecules` (records whose molecule an earlier one of the file holds)
        and, of a given split, `leaked_molecules` (records of val or test that train holds, too).

    Raises:
        ConfigError: if there is no such corpus, adapter or setting, or an adapter has no path.
        DataError: if the input cannot be used, or has no usable record.
        RecordError: for the first bad record, under on_error="raise".
        SchemaError: if the adapter breaks a promise.
    """
    data = _data_module(name, path, settings or {})
    every_variant = path is None and "variant" not in (settings or {})
    files = data.source.files(data.root, data.cache_dir, every_variant)
    data.source = data.source.with_inferred_options(files)
    files = data.source.files(data.root, data.cache_dir, every_variant)
    with storing(data.cache_dir):
        data.cache_dir.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".checking-", dir=data.cache_dir)
    with folder:
        begin = time.perf_counter()
        sources = [(file.adapter, file.path) for file in files]
        packed = pack_files(sources, Path(folder.name), data.on_error, data.num_workers)
        seconds = time.perf_counter() - begin
        refuse_empty(packed)
        for file, corpus in zip(files, packed, strict=True):
            _check(file.adapter.make(), corpus)
        return _card(files, packed, seconds, data.root)


def _data_module(name: str, path: str | Path | None, settings: Mapping[str, Any]) -> DataModule:
    _check_settings(path, settings)
    if name in CORPORA:
        return DataModule(corpus=name, **{"path": path, **settings})
    adapters = ADAPTERS.names()
    if name not in adapters and not is_path(name):
        raise ConfigError(
            f"there is no corpus or adapter '{name}'.{did_you_mean(name, [*CORPORA, *adapters])} "
            f"The corpora are {', '.join(CORPORA)}; the adapters {', '.join(sorted(adapters))}."
        )
    if path is None and "path" not in settings:
        raise ConfigError(
            f"'{name}' is an adapter, not a corpus, so it needs a file to read. Give --data PATH."
        )
    return DataModule(adapter=name, **{"path": path, **settings})


def _check_settings(path: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Refuses what NAME or PATH has said already, and values of the wrong type."""
    said = {"corpus", "adapter"} if path is None else {"corpus", "adapter", "path"}
    faults = [
        f"data.{key} is given twice, by the command and by a setting. Leave out the setting."
        for key in settings
        if key in said
    ]
    if faults:
        raise ConfigError("\n".join(faults))


def _check(adapter: Adapter, corpus: PackedCorpus) -> None:
    """Raises SchemaError if the adapter or its stored graphs break a promise."""
    validate(corpus.dag)
    records = islice(adapter.records(corpus.path), _SAMPLE)
    again = read_records(adapter, corpus.path, records, on_error="skip").dag
    stored = select(corpus.dag, range(again.num_graphs))
    numbers = torch.cat([again.origin[:, :2], stored.origin[:, 2:]], dim=1)
    _require_equal(adapter, "reading twice", replace(again, origin=numbers), stored)
    for graph in split(select(corpus.dag, range(min(_FEW, again.num_graphs)))):
        detour = from_networkx(to_networkx(graph), graph.schema)
        _require_equal(adapter, "a detour through networkx", detour, graph)


def _require_equal(adapter: Adapter, way: str, first: TypedDAG, second: TypedDAG) -> None:
    part = difference(first, second)
    if part is not None:
        raise SchemaError(
            f"{type(adapter).__name__}: {way} changes the graphs, first in {part}. Let parse "
            "depend on nothing but the record and the options."
        )


def _card(
    files: list[DataFile], packed: list[PackedCorpus], seconds: float, root: Path
) -> dict[str, Any]:
    splits: dict[str, int] = {}
    for file, corpus in zip(files, packed, strict=True):
        part = file.part or "all"
        splits[part] = splits.get(part, 0) + corpus.dag.num_graphs
    skipped = [error for corpus in packed for error in corpus.skipped]
    records = sum(splits.values())
    adapter = files[0].adapter.make()
    return {
        "records": records,
        "splits": splits,
        "skipped": len(skipped),
        "reasons": [{"file": e.path, "line": e.line, "reason": e.fault} for e in skipped],
        "changed": sum(count_changed(corpus.dag) for corpus in packed),
        "nodes": sum(corpus.dag.num_nodes for corpus in packed),
        "records_per_second": round((records + len(skipped)) / seconds, 1),
        "peak_mb": round(_peak_memory(), 1),
        "files": list(_describe_files(packed, root)),
        **_repeats(files, packed),
        "notes": [note for corpus in packed for note in adapter.notes(corpus.dag)],
        **describe_graphs([corpus.dag for corpus in packed]),
    }


def _repeats(files: list[DataFile], packed: list[PackedCorpus]) -> dict[str, int]:
    """Counts molecules that occur again in a file, and in another part; nothing of other graphs."""
    dags = [corpus.dag for corpus in packed]
    if not all(("graph", "smiles") in dag.dictionaries for dag in dags):
        return {}
    facts = {"repeated_molecules": sum(len(s) - 1 for d in dags for s in repeated_molecules(d))}
    parts = [f.part for f, dag in zip(files, dags, strict=True) for _ in range(dag.num_graphs)]
    if "train" not in parts:
        return facts
    shared = [[parts[k] for k in same] for same in repeated_molecules(collate(dags))]
    leaked = sum(len(same) - same.count("train") for same in shared if "train" in same)
    return {**facts, "leaked_molecules": leaked}


def _describe_files(packed: list[PackedCorpus], root: Path) -> Iterator[dict[str, Any]]:
    for corpus in packed:
        yield {
            "path": str(corpus.path),
            "records": corpus.dag.num_graphs,
            "skipped": len(corpus.skipped),
            "sha256": corpus.content,
            "as_published": is_published(corpus.path, root),
        }


def _peak_memory() -> float:
    """The largest resident memory, in MiB, of this process or of a finished worker."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(process).ru_maxrss for process in who) * unit / 2**20
