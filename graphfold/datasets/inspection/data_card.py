"""Data cards: counts of what is in some graphs, and the same as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import Column, TypedDAG
from graphfold.datasets.corpora.corpus import known_hashes
from graphfold.datasets.features.vocabulary import count_words
from graphfold.datasets.storage.fingerprint import file_hash
from graphfold.errors import shortened

#: So many words of each string feature are shown with their counts.
MOST_FREQUENT = 12


def describe_graphs(dags: Sequence[TypedDAG]) -> dict[str, Any]:
    """Counts over all graphs of `dags`, whose schemas may differ.

    Returns:
        Plain values: `node_types` (type -> nodes), `inputs`, `relations` (relation -> edges),
        `nodes_per_graph` and `depth` (the least, the mean and the most of a graph), `vocabularies`
        (string feature -> different words), `frequent` (string feature -> its `MOST_FREQUENT` words
        -> how often they occur) and `targets` (see `describe_target`).
    """
    node_types: dict[str, int] = {}
    relations: dict[str, int] = {}
    words: dict[str, Counter[str]] = {}
    targets: dict[str, tuple[Column, list[Tensor]]] = {}
    for dag in dags:
        for node_type, count in zip(dag.schema.types, dag.num_nodes_by_type, strict=True):
            node_types[node_type.name] = node_types.get(node_type.name, 0) + count
        for name, relation in dag.relations.items():
            relations[name] = relations.get(name, 0) + len(relation.index)
        for (space, name), dictionary in dag.dictionaries.items():
            if space != "graph":
                counts = count_words(dag.columns[space][name], dictionary)
                words.setdefault(f"{space}/{name}", Counter()).update(counts)
        for space, column in _targets(dag):
            values = dag.columns[space][column.name]
            targets.setdefault(column.name, (column, []))[1].append(values)
    return {
        "node_types": node_types,
        "inputs": sum(dag.num_inputs for dag in dags),
        "relations": relations,
        "nodes_per_graph": _spread([dag.node_ptr.diff() for dag in dags]),
        "depth": _spread([_graph_depth(dag) for dag in dags]),
        "vocabularies": {name: len(counts) for name, counts in words.items()},
        "frequent": {name: _most_frequent(counts) for name, counts in words.items()},
        "targets": {
            name: describe_target(column, torch.cat(values))
            for name, (column, values) in targets.items()
        },
    }


def describe_target(column: Column, values: Tensor) -> dict[str, Any]:
    """Counts the measured values of a target, and describes their distribution.

    Returns:
        `measured`, `missing`, `unit`; for codes `counts` (code -> how often it occurs) and, where
        classes have names, `classes` (code -> name); for numbers `mean`, `std`, `min` and `max`
        (null where nothing is measured).
    """
    is_missing = values.isnan() if values.is_floating_point() else values < 0
    found = values[~is_missing]
    facts: dict[str, Any] = {
        "measured": found.numel(),
        "missing": int(is_missing.sum()),
        "unit": column.unit,
    }
    if not values.is_floating_point():
        codes, counts = torch.unique(found, return_counts=True)
        facts["counts"] = dict(zip(map(str, codes.tolist()), counts.tolist(), strict=True))
        named = {"classes": {str(code): name for code, name in enumerate(column.names)}}
        return facts | named if column.names else facts
    numbers = found.double()
    names = ("mean", "std", "min", "max")
    if not len(numbers):
        return facts | dict.fromkeys(names)
    mean, std = float(numbers.mean()), float(numbers.std(correction=0))
    return facts | dict(
        zip(names, (mean, std, float(numbers.min()), float(numbers.max())), strict=True)
    )


def is_published(path: Path, root: Path) -> bool | None:
    """Compares the sha256 of a file, or of every file of a folder, with the published one.

    Args:
        path: the file or folder.
        root: the folder that holds the corpora.

    Returns:
        None where the published file is not known.
    """
    try:
        name = path.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        return None
    known = {n: digest for n, digest in known_hashes().items() if f"{n}/".startswith(f"{name}/")}
    if not known:
        return None
    files = ((root / n, digest) for n, digest in known.items())
    return all(file.is_file() and file_hash(file) == digest for file, digest in files)


def format_card(card: Mapping[str, Any]) -> str:
    """A data card, as from `check.check_data`, as lines of text."""
    return "\n".join(_lines(card))


def _lines(card: Mapping[str, Any]) -> Iterator[str]:
    parts = ", ".join(f"{part} {count}" for part, count in card["splits"].items())
    yield f"records       {card['records']} ({parts}), {card['skipped']} left out"
    for reason in card["reasons"][:10]:
        yield f"              {reason['file']}:{reason['line']}: {reason['reason']}"
    if card["skipped"] > 10:
        yield f"              and {card['skipped'] - 10} more"
    if card["changed"]:
        yield f"changed       {card['changed']} records, by options of the adapter"
    types = ", ".join(f"{name} {count}" for name, count in card["node_types"].items())
    yield f"nodes         {card['nodes']} ({types}), {card['inputs']} inputs"
    for name, count in card["relations"].items():
        yield f"relation      {name}: {count} edges"
    yield f"nodes/record  {_range(card['nodes_per_graph'])}"
    yield f"depth         {_range(card['depth'])}"
    for name, count in card["vocabularies"].items():
        yield f"words         {name}: {count} different: {_listed(card['frequent'][name], count)}"
    for name, facts in card["targets"].items():
        yield f"target        {name}: {_distribution(facts)}"
    if "repeated_molecules" in card:
        yield f"repeated      {card['repeated_molecules']} records of molecules met before"
    if "leaked_molecules" in card:
        yield f"leaked        {card['leaked_molecules']} records of molecules that train has, too"
    for file in card["files"]:
        known = {True: ", as published", False: ", not as published", None: ""}
        yield f"file          {file['path']}{known[file['as_published']]}"
    for note in card["notes"]:
        yield f"note          {note}"
    yield (
        f"speed         {card['records_per_second']:.0f} records/s, read and stored; "
        f"peak memory {card['peak_mb']:.0f} MiB"
    )


def _most_frequent(counts: Counter[str]) -> dict[str, int]:
    """The most frequent words; of equal ones the first in the alphabet."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:MOST_FREQUENT])


def _listed(frequent: Mapping[str, int], count: int) -> str:
    """The most frequent words as they are printed."""
    words = ", ".join(f"{shortened(word)} {times}" for word, times in frequent.items())
    return words + (", ..." if count > len(frequent) else "")


def _range(spread: Mapping[str, float]) -> str:
    return f"{spread['min']:g} to {spread['max']:g}, mean {spread['mean']:.1f}"


def _distribution(facts: Mapping[str, Any]) -> str:
    unit = f" {facts['unit']}" if facts["unit"] else ""
    text = f"{facts['measured']} measured, {facts['missing']} missing"
    if "counts" in facts:
        names = facts.get("classes", {})
        counts = ", ".join(f"{names.get(code, code)}: {n}" for code, n in facts["counts"].items())
        return f"{text}; {counts}"
    if facts["mean"] is None:
        return text
    return (
        f"{text}; mean {facts['mean']:.4g}, std {facts['std']:.4g}, "
        f"{facts['min']:.4g} to {facts['max']:.4g}{unit}"
    )


def _targets(dag: TypedDAG) -> list[tuple[str, Column]]:
    schema = dag.schema
    targets = [("graph", column) for column in schema.graph_targets]
    targets += [("node", column) for column in schema.node_targets]
    targets += [("inputs", column) for column in schema.inputs.targets]
    return targets + [(f"relation:{e.name}", c) for e in schema.relations for c in e.targets]


def _graph_depth(dag: TypedDAG) -> Tensor:
    """[num_graphs] the depth of the deepest node."""
    return torch.zeros(dag.num_graphs, dtype=torch.int64).scatter_reduce(
        0, dag.batch, dag.depth, "amax"
    )


def _spread(values: Sequence[Tensor]) -> dict[str, float]:
    joined = torch.cat(list(values))
    return {
        "min": int(joined.min()),
        "mean": float(joined.double().mean()),
        "max": int(joined.max()),
    }
