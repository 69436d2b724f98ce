"""`graphfold check-adapter`: reads data, tests the adapter, and makes a data card."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import Column, TypedDAG, collate, from_networkx, select, split, to_networkx
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Adapter, ReadResult, count_changed, read_records
from graphfold.datasets.corpora.corpus import DataFile, known_hashes
from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.vocabulary import count_words
from graphfold.datasets.inspection.graph_hash import has_molecules, repeated_molecules
from graphfold.datasets.storage.content_key import content_hash, file_hash
from graphfold.datasets.storage.packing import refuse_empty
from graphfold.errors import ConfigError, SchemaError, did_you_mean, shortened
from graphfold.registry import ADAPTERS, is_path

#: The records that are read twice, and the graphs that are converted to networkx and back.
_SAMPLE, _FEW = 256, 3

#: The words of each string feature that are shown.
_LISTED = 12


def check_data(
    name: str, path: str | Path | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Reads all records of a corpus or a file, checks and counts them.

    The graphs must fit their schema, reading twice must give the same, and a few graphs must equal
    themselves after a conversion to networkx and back.

    Args:
        name: a corpus (all its files are read, of all variants), or an adapter.
        path: the file to read; with a corpus, in place of its files.
        settings: options of the adapter and keys of the config group `data`.

    Returns:
        Plain values: `records` (usable ones), `splits` (the same by part of the given split, "all"
        without one), `skipped`, `reasons` (a list of {"file", "line", "reason"}), `changed`,
        `nodes`, `node_types`, `inputs`, `relations` (name -> edges), `nodes_per_graph` and `depth`
        (least, mean and most), `vocabularies` (string feature -> different words), `frequent` (its
        most frequent words -> counts), `targets` (see `describe_target`), `records_per_second`,
        `peak_mb` (the largest resident memory in MiB), `files`, `notes`, and for molecules
        `repeated_molecules` (records with the molecule of an earlier one of the file) and, of a
        given split, `leaked_molecules` (records of val or test with a molecule of train).

    Raises:
        ConfigError: if there is no such corpus, adapter or setting, or an adapter has no path.
        DataError: if the input cannot be used, or has no usable record.
        RecordError: for the first bad record, under on_error="raise".
        SchemaError: if the adapter breaks a promise.
    """
    settings = dict(settings or {})
    data = _data_module(name, path, settings)
    where = (data.root, data.cache_dir, path is None and "variant" not in settings)
    data.source = data.source.with_inferred_options(data.source.files(*where))
    files = data.source.files(*where)
    hashes = [content_hash(file.adapter.make(), file.path) for file in files]
    begin = time.perf_counter()
    results = [_read(file, data.on_error) for file in files]
    seconds = time.perf_counter() - begin
    refuse_empty(files[0].path, results)
    skipped = [error for result in results for error in result.skipped]
    dags = [result.dag for result in results]
    splits, notes = Counter[str](), list[str]()
    for file, dag in zip(files, dags, strict=True):
        _check(file, dag)
        splits[file.part or "all"] += dag.num_graphs
        notes += file.adapter.make().notes(dag)
    return {
        "records": splits.total(),
        "splits": dict(splits),
        "skipped": len(skipped),
        "reasons": [{"file": e.path, "line": e.line, "reason": e.fault} for e in skipped],
        "changed": sum(map(count_changed, dags)),
        **_describe_graphs(dags),
        "records_per_second": round((splits.total() + len(skipped)) / seconds, 1),
        "peak_mb": _peak_mb(),
        "files": [
            {"path": str(file.path), "sha256": digest, "as_published": _is_published(file, data)}
            for file, digest in zip(files, hashes, strict=True)
        ],
        "notes": notes,
        **_repeats(files, dags),
    }


def _peak_mb() -> float:
    """The largest resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def _data_module(name: str, path: str | Path | None, settings: Mapping[str, Any]) -> DataModule:
    for key in {"corpus", "adapter", *(["path"] if path is not None else [])} & settings.keys():
        raise ConfigError(
            f"data.{key} is given twice, by the command and by a setting. Leave out the setting."
        )
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


def _read(file: DataFile, on_error: str) -> ReadResult:
    adapter = file.adapter.make()
    return read_records(adapter, file.path, adapter.records(file.path), on_error)


def _check(file: DataFile, dag: TypedDAG) -> None:
    """Raises SchemaError if the graphs change when they are read or converted again."""
    adapter = file.adapter.make()
    records = islice(adapter.records(file.path), _SAMPLE)
    again = read_records(adapter, file.path, records, on_error="skip").dag
    _require_equal(adapter, "reading twice", again, select(dag, range(again.num_graphs)))
    for graph in split(select(dag, range(min(_FEW, dag.num_graphs)))):
        detour = from_networkx(to_networkx(graph), graph.schema)
        _require_equal(adapter, "a detour through networkx", detour, graph)


def _require_equal(adapter: Adapter, cause: str, first: TypedDAG, second: TypedDAG) -> None:
    part = difference(first, replace(second, origin=first.origin))
    if part is not None:
        raise SchemaError(
            f"{type(adapter).__name__}: {cause} changes the graphs, first in {part}. Let parse "
            "depend on nothing but the record and the options."
        )


def _describe_graphs(dags: Sequence[TypedDAG]) -> dict[str, Any]:
    """Counts over all graphs of one or more schemas."""
    node_types, relations = Counter[str](), Counter[str]()
    words: dict[str, Counter[str]] = {}
    targets: dict[str, tuple[Column, list[Tensor]]] = {}
    for dag in dags:
        names = [node_type.name for node_type in dag.schema.types]
        node_types.update(dict(zip(names, dag.num_nodes_by_type, strict=True)))
        relations.update({name: len(edges.index) for name, edges in dag.relations.items()})
        for (space, name), dictionary in dag.dictionaries.items():
            if space != "graph":
                counts = count_words(dag.columns[space][name], dictionary)
                words.setdefault(f"{space}/{name}", Counter()).update(counts)
        for space, column in dag.schema.targets():
            values = dag.columns[space][column.name]
            targets.setdefault(column.name, (column, []))[1].append(values)
    depths = [
        torch.zeros(d.num_graphs, dtype=torch.int64).scatter_reduce(0, d.batch, d.depth, "amax")
        for d in dags
    ]
    return {
        "nodes": node_types.total(),
        "node_types": dict(node_types),
        "inputs": sum(dag.num_inputs for dag in dags),
        "relations": dict(relations),
        "nodes_per_graph": _spread(torch.cat([dag.node_ptr.diff() for dag in dags])),
        "depth": _spread(torch.cat(depths)),
        "vocabularies": {name: len(counts) for name, counts in words.items()},
        "frequent": {name: dict(counts.most_common(_LISTED)) for name, counts in words.items()},
        "targets": {n: describe_target(c, torch.cat(values)) for n, (c, values) in targets.items()},
    }


def describe_target(column: Column, values: Tensor) -> dict[str, Any]:
    """Counts the measured values of a target, and describes their distribution.

    Returns:
        `measured`, `missing`, `unit`; of codes `counts` (class -> how often it occurs); of numbers
        `mean`, `std`, `min` and `max` (null where nothing is measured).
    """
    measured = values[~values.isnan() if values.is_floating_point() else values >= 0]
    count = measured.numel()
    facts = {"measured": count, "missing": values.numel() - count, "unit": column.unit}
    if not values.is_floating_point():
        codes, counts = torch.unique(measured, return_counts=True)
        names = [column.names[c] if column.names else str(c) for c in codes.tolist()]
        return {**facts, "counts": dict(zip(names, counts.tolist(), strict=True))}
    if not count:
        return facts | dict.fromkeys(("mean", "std", "min", "max"))
    return {**facts, **_spread(measured), "std": float(measured.double().std(correction=0))}


def _spread(values: Tensor) -> dict[str, float]:
    low, high = values.aminmax()
    return {"min": low.item(), "mean": float(values.double().mean()), "max": high.item()}


def _is_published(file: DataFile, data: DataModule) -> bool | None:
    """True if all files have the published sha256; None without a published one."""
    root, path = data.root.absolute(), file.path.absolute()
    published = {root / name: digest for name, digest in known_hashes().items()}
    digests = {p: digest for p, digest in published.items() if p == path or path in p.parents}
    if not digests:
        return None
    return all(p.is_file() and file_hash(p) == digest for p, digest in digests.items())


def _repeats(files: Sequence[DataFile], dags: Sequence[TypedDAG]) -> dict[str, int]:
    """Counts molecules that occur again in a file, and in another part; nothing of other graphs."""
    if not all(map(has_molecules, dags)):
        return {}
    facts = {"repeated_molecules": sum(len(s) - 1 for d in dags for s in repeated_molecules(d))}
    parts = [f.part for f, dag in zip(files, dags, strict=True) for _ in range(dag.num_graphs)]
    if "train" not in parts:
        return facts
    shared = [[parts[k] for k in same] for same in repeated_molecules(collate(list(dags)))]
    leaked = sum(len(same) - same.count("train") for same in shared if "train" in same)
    return {**facts, "leaked_molecules": leaked}


def format_card(card: Mapping[str, Any]) -> str:
    """A data card, as from `check_data`, as lines of text."""
    return "\n".join(f"{name:<14}{text}" for name, text in _lines(card))


def _lines(card: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "records", f"{card['records']} ({_counts(card['splits'])}), {card['skipped']} left out"
    for reason in card["reasons"][:10]:
        yield "", f"{reason['file']}:{reason['line']}: {reason['reason']}"
    if card["skipped"] > 10:
        yield "", f"and {card['skipped'] - 10} more"
    if card["changed"]:
        yield "changed", f"{card['changed']} records, by options of the adapter"
    yield "nodes", f"{card['nodes']} ({_counts(card['node_types'])}), {card['inputs']} inputs"
    for name, count in card["relations"].items():
        yield "relation", f"{name}: {count} edges"
    for name in ("nodes_per_graph", "depth"):
        low, mean, high = (card[name][key] for key in ("min", "mean", "max"))
        yield name.replace("_per_graph", "/record"), f"{low} to {high}, mean {mean:.1f}"
    for name, count in card["vocabularies"].items():
        listed = {shortened(word): times for word, times in card["frequent"][name].items()}
        yield "words", f"{name}: {count} different: {_counts(listed)}{', ...' * (count > _LISTED)}"
    for name, facts in card["targets"].items():
        text = f"{name}: {facts['measured']} measured, {facts['missing']} missing"
        if "counts" in facts:
            text += f"; {_counts(facts['counts'])}"
        elif facts["measured"]:
            text += "; mean {mean:.4g}, std {std:.4g}, {min:.4g} to {max:.4g}".format(**facts)
        yield "target", f"{text} {facts['unit'] or ''}".rstrip()
    if "repeated_molecules" in card:
        yield "repeated", f"{card['repeated_molecules']} records of molecules met before"
    if "leaked_molecules" in card:
        yield "leaked", f"{card['leaked_molecules']} records of molecules that train has, too"
    for file in card["files"]:
        remark = {True: ", as published", False: ", not as published", None: ""}
        yield "file", f"{file['path']}{remark[file['as_published']]}"
    for note in card["notes"]:
        yield "note", note
    yield "speed", f"{card['records_per_second']:.0f} records/s, memory {card['peak_mb']:.0f} MiB"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
