"""Lowered examples in files, for the next run: found by the fingerprint of model and examples.

A file's name says what its graphs were made of, so nothing else can be read in its place. It is
written whole or not at all, and processes that store the same at once do not disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphfold.blocks.compiled import CompiledModel
from graphfold.blocks.errors import BlockValueError
from graphfold.blocks.fingerprint import fingerprint
from graphfold.blocks.lowering import Label
from graphfold.blocks.node_types import OUTPUTS
from graphfold.dag import Schema, TypedDAG
from graphfold.datasets.storage.arrow_file import GraphFileWriter, read_graphs, read_metadata
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.columns import row_counts, to_columns

#: The version of the layout of the files.
FORMAT = 1

_LABELS = f"relation:{OUTPUTS}", "label"
_SCALARS = (type(None), bool, int, float, str)


def lower_or_load(
    model: CompiledModel,
    examples: Sequence[Any],
    cache_dir: Path,
    cache_key: str | None = None,
    num_workers: int = 0,
) -> TypedDAG:
    """The graphs of some examples: from their file if there is one, else lowered and stored.

    Args:
        model: the model.
        examples: the examples.
        cache_dir: the folder of the files; made if need be.
        cache_key: what vouches for functions and objects that cannot be read.
        num_workers: processes that share the work of lowering.

    Raises:
        BlockValueError: if something cannot be read and there is no key, blocks change while they
            run, or a label cannot be stored.
        DataError: if nothing can be stored there.
        GraphfoldError: if an example does not fit; a note names it.
    """
    before = _of_model(model, cache_key)
    facts = [FORMAT, sys.version, before, fingerprint([examples], {}, cache_key)]
    path = cache_dir / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.arrow"
    found = _load(path)
    if found is None:
        found = model.lower(examples, num_workers)
        if _of_model(model, cache_key) != before:
            raise BlockValueError(
                "the blocks are not the same after the examples were read: a function of theirs "
                "keeps something, which would be missing when the graphs come from a file. Let "
                "functions depend on the example alone, or do without cache_dir."
            )
        _store(found, path)
    return model.widen(found)


def _of_model(model: CompiledModel, key: str | None) -> str:
    return fingerprint([model.root], model.node_types.operations.name_of, key)


def _store(dag: TypedDAG, path: Path) -> None:
    labels = tuple(map(_text, dag.dictionaries[_LABELS]))
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".lowering-", dir=path.parent)
        with folder, GraphFileWriter(dag.schema, Path(folder.name)) as writer:
            writer.append(to_columns(dag), row_counts(dag), {_LABELS: labels})
            whole = Path(folder.name) / "whole"
            writer.finish(whole, {"schema": dag.schema.to_dict()})
            os.replace(whole, path)


def _load(path: Path) -> TypedDAG | None:
    """The graphs in a file, or None if there is none, or a damaged one."""
    try:
        schema = Schema.from_dict(read_metadata(path)["schema"])
        dag = read_graphs(path, schema, ())
        labels = tuple(Label(_value(json.loads(text))) for text in dag.dictionaries[_LABELS])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
    return replace(dag, dictionaries={_LABELS: labels})  # type: ignore[dict-item]


def _text(label: Any) -> str:
    """A label as JSON.

    Raises:
        BlockValueError: if that does not hold it.
    """
    try:
        return json.dumps(_plain(label.value))
    except (TypeError, RecursionError) as error:
        raise BlockValueError(
            f"a label cannot be stored: {reprlib.repr(label.value)}. Use numbers, strings, and "
            "lists, tuples and dicts of them, or do without cache_dir."
        ) from error


def _plain(value: Any) -> Any:
    """A value in a form that JSON holds, so that `_value` gives it back as it was."""
    if type(value) in _SCALARS:
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [_plain(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.generic) and type(value.item()) in _SCALARS:
        return {"numpy": [value.dtype.str, value.item()]}
    raise TypeError(f"{type(value)}")


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "numpy":
        return np.dtype(content[0]).type(content[1])
    if kind == "dict":
        return {_value(key): _value(item) for key, item in content}
    items = map(_value, content)
    return tuple(items) if kind == "tuple" else list(items)
