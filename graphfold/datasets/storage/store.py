"""Stored graphs: the tensors of a `TypedDAG`, each in a file that is mapped into memory.

A stored copy is a folder. Each tensor is an `.npy` file of all graphs, and so are the pointers to
the first row of each graph. The strings of a column of codes are two files, as in Arrow: where each
string begins, and their UTF-8. `manifest.json` names the files and is written last. A copy is
opened as a `TypedDAG` without being read: `select` reads the graphs that it picks, and the system
caches them while it has memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from graphfold.dag import GraphBuilder, Relation, Schema, TypedDAG, collate, select
from graphfold.dag.collate import recode
from graphfold.dag.depth import IntArray, run_pointers
from graphfold.dag.typed_dag import TENSORS
from graphfold.errors import SchemaError

Array = np.ndarray
Key = tuple[str, str]

MANIFEST = "manifest.json"

#: The most strings of a column that are held in memory and compared with new ones.
MOST_STRINGS = 1 << 17

#: Strings that are decoded at a time.
_CHUNK = 1 << 16


def to_arrays(dag: TypedDAG) -> dict[str, Array]:
    """The tensors of some graphs by name, and as `rows:SPACE` the pointers to their rows."""
    tensors = {name: getattr(dag, name) for name in TENSORS}
    for name, relation in dag.relations.items():
        tensors |= {f"ptr:{name}": relation.ptr, f"index:{name}": relation.index}
    for space in dag.schema.spaces():
        tensors |= {f"{space}/{name}": column for name, column in dag.columns[space].items()}
        if space != "graph":
            tensors[f"rows:{space}"] = dag.row_ptr(space)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def from_arrays(
    schema: Schema,
    arrays: Mapping[str, Tensor],
    dictionaries: Mapping[Key, Sequence[str]],
    files: tuple[str, ...],
) -> TypedDAG:
    """The inverse of `to_arrays`; the graphs share the tensors of `arrays`.

    Args:
        schema: of the graphs.
        arrays: name -> the array as a tensor.
        dictionaries: the strings of the columns of codes.
        files: what `origin` refers to.
    """
    tensors: dict[str, Any] = {name: arrays[name] for name in TENSORS}
    dag = TypedDAG(
        schema,
        **tensors,
        num_graphs=len(arrays["origin"]),
        columns={
            space: {column.name: arrays[f"{space}/{column.name}"] for column in columns}
            for space, columns in schema.spaces().items()
        },
        relations={
            edge.name: Relation(arrays[f"ptr:{edge.name}"], arrays[f"index:{edge.name}"])
            for edge in schema.relations
        },
        dictionaries=dictionaries,
        files=files,
    )
    spaces = (space for space in schema.spaces() if space != "graph")
    dag.row_ptrs.update({space: arrays[f"rows:{space}"] for space in spaces})
    return dag


class StoreWriter:
    """Writes graphs that arrive a chunk at a time, in the memory of one chunk.

    Args:
        schema: of all graphs.
        folder: an empty folder, which becomes the stored copy.
    """

    def __init__(self, schema: Schema, folder: Path) -> None:
        self.num_graphs = 0
        self._folder = folder
        self._files: dict[str, tuple[BinaryIO, np.dtype[Any], tuple[int, ...]]] = {}
        self._rows: dict[str, int] = {}  # so far, of each file
        self._last: dict[str, int] = {}  # the last pointer, of each array of pointers
        self._open = ExitStack()
        self._keys = string_columns(schema)
        self._codes: dict[str, dict[str, int]] = {name: {} for name in self._keys}
        self.append(GraphBuilder(schema).build())

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def append(self, dag: TypedDAG) -> None:
        """Adds graphs."""
        num_nodes = self._rows.get("op_type", 0)
        for name, array in to_arrays(dag).items():
            if name in self._keys:
                array = self._recoded(name, array, dag.dictionaries[self._keys[name]])
            elif name in ("input_index", "output_index") or name.startswith("index:"):
                array = np.where(array < 0, array, array + num_nodes)
            elif name == "batch":
                array = array + self.num_graphs
            elif name == "origin":
                array = array + np.array([0, 0, self.num_graphs])
            if name in ("input_ptr", "output_ptr") or name.startswith(("ptr:", "rows:")):
                self._point(name, array)
            else:
                self._write(name, array)
        self.num_graphs += dag.num_graphs

    def finish(self, **facts: Any) -> None:
        """Closes the files, and writes the manifest with `facts`, which are plain values."""
        for name, (file, dtype, shape) in self._files.items():
            file.seek(0)
            write_npy_header(file, dtype, (self._rows[name], *shape))
        self._open.close()
        manifest = {**facts, "files": [*self._files]}
        (self._folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    def _point(self, name: str, pointers: Array) -> None:
        """Adds pointers; the first of them coincides with the last one before."""
        begin = self._last.get(name)
        self._write(name, pointers if begin is None else pointers[1:] + begin)
        self._last[name] = int(pointers[-1]) + (begin or 0)

    def _write(self, name: str, array: Array) -> None:
        if name not in self._files:
            path = self._folder / f"{len(self._files)}.npy"
            new = self._open.enter_context(path.open("wb"))
            write_npy_header(new, array.dtype, array.shape)
            self._files[name] = new, array.dtype, array.shape[1:]
            self._rows[name] = 0
        file, dtype, _ = self._files[name]
        file.write(np.ascontiguousarray(array, dtype).data)
        self._rows[name] += len(array)

    def _recoded(self, name: str, codes: Array, words: Sequence[str]) -> Array:
        """Translates codes of a chunk into codes of the whole copy, and writes new strings."""
        code_of = self._codes[name]
        count = self._rows.get(f"begin {name}", 1) - 1
        new: list[str] = []
        lookup = np.full(len(words) + 1, -1)  # the last entry answers for -1, a missing value
        for number, word in enumerate(words):
            code = code_of.get(word)
            if code is None:
                code = count + len(new)
                new.append(word)
                if len(code_of) < MOST_STRINGS:
                    code_of[word] = code
            lookup[number] = code
        begin, text = _encoded(new)
        self._point(f"begin {name}", begin)
        self._write(f"text {name}", text)
        recoded: Array = lookup[codes]
        return recoded


def read_manifest(folder: Path) -> dict[str, Any]:
    """The facts of a stored copy.

    Raises:
        OSError: if the copy is absent.
        ValueError: if it is no JSON.
    """
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    return manifest


def open_graphs(folder: Path, schema: Schema, files: tuple[str, ...]) -> TypedDAG:
    """The graphs of a stored copy, mapped into memory; they survive its removal.

    Args:
        folder: the copy.
        schema: of the graphs.
        files: the name of the file that they were read from.

    Raises:
        OSError: if the copy is absent.
        ValueError, KeyError: if it is incomplete.
    """
    names = read_manifest(folder)["files"]
    arrays = {name: _mapped(folder / f"{number}.npy") for number, name in enumerate(names)}
    dictionaries: dict[Key, Sequence[str]] = {}
    for name, key in string_columns(schema).items():
        texts = Texts([(arrays[f"begin {name}"].numpy(), arrays[f"text {name}"].numpy())])
        dictionaries[key] = tuple(texts) if len(texts) <= MOST_STRINGS else texts
    return from_arrays(schema, arrays, dictionaries, files)


def string_columns(schema: Schema) -> dict[str, Key]:
    """Name of an array -> space and column, of the columns of codes of strings."""
    return {
        f"{space}/{column.name}": (space, column.name)
        for space, columns in schema.spaces().items()
        for column in columns
        if column.dtype == "string"
    }


def size_of(folder: Path) -> int:
    """The bytes of a stored copy."""
    return sum(path.stat().st_size for path in folder.iterdir())


class Texts(Sequence[str]):
    """Strings that stay in their files; several files count as one sequence.

    Args:
        parts: of each file [num_strings + 1] where each string begins, and [num_bytes] their UTF-8.
    """

    def __init__(self, parts: Sequence[tuple[IntArray, Array]]) -> None:
        self.parts = parts
        self.first = run_pointers(np.array([len(begin) - 1 for begin, _ in parts]))

    def __len__(self) -> int:
        return int(self.first[-1])

    def __iter__(self) -> Iterator[str]:
        for begin, text in self.parts:
            for first in range(0, len(begin) - 1, _CHUNK):
                yield from _decoded(begin[first : first + _CHUNK + 1], text)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        part = int(np.searchsorted(self.first, number, side="right")) - 1
        begin, text = self.parts[part]
        place = number - int(self.first[part])
        (word,) = _decoded(begin[place : place + 2], text)
        return word


class GraphCorpus:
    """The graphs of several files as one corpus.

    Args:
        parts: the graphs of each file, at least one.

    Raises:
        SchemaError: if their schemas differ.
    """

    def __init__(self, parts: Sequence[TypedDAG]) -> None:
        if any(part.schema != parts[0].schema for part in parts):
            raise SchemaError(
                "graphs of different schemas cannot be collated. Convert one of them."
            )
        self.parts = parts if len(parts) == 1 else _with_common_strings(parts)
        self._first = run_pointers(np.array([part.num_graphs for part in parts]))

    @property
    def schema(self) -> Schema:
        """The schema of all graphs."""
        return self.parts[0].schema

    @property
    def num_graphs(self) -> int:
        """The number of all graphs."""
        return int(self._first[-1])

    def map(self, function: Callable[[TypedDAG], TypedDAG]) -> GraphCorpus:
        """A corpus with other columns; `function` changes no nodes and no edges."""
        other = copy(self)
        other.parts = [_with_row_ptrs(part, function(part)) for part in self.parts]
        return other

    def whole(self) -> TypedDAG:
        """All graphs as one `TypedDAG`; several files are read into memory."""
        return self.parts[0] if len(self.parts) == 1 else collate(self.parts)

    def facts(self) -> TypedDAG:
        """All graphs without their nodes: the columns and origins of whole graphs."""
        return collate([without_nodes(part) for part in self.parts])

    def select(self, graphs: Tensor | Sequence[int]) -> TypedDAG:
        """The graphs with the given numbers, in the given order, as one `TypedDAG`."""
        if len(self.parts) == 1:
            return select(self.parts[0], graphs)
        numbers = np.asarray(graphs, dtype=np.int64).reshape(-1)
        part_of = np.searchsorted(self._first, numbers, side="right") - 1
        order = part_of.argsort(kind="stable")
        dags = [
            select(self.parts[part], torch.from_numpy(numbers[part_of == part] - self._first[part]))
            for part in np.unique(part_of)
        ]
        if not dags:
            return select(self.parts[0], [])
        dag = dags[0] if len(dags) == 1 else collate(dags)
        is_sorted = bool((np.diff(part_of) >= 0).all())
        return dag if is_sorted else select(dag, torch.from_numpy(order.argsort()))

    def num_rows(self, space: str) -> Tensor:
        """[num_graphs] how many rows each graph has in a space of the schema, or "output"."""
        return torch.cat(
            [(p.output_ptr if space == "output" else p.row_ptr(space)).diff() for p in self.parts]
        )


def without_nodes(dag: TypedDAG) -> TypedDAG:
    """The graphs without their nodes."""
    empty = select(dag, [])
    return replace(
        empty,
        num_graphs=dag.num_graphs,
        output_ptr=torch.zeros(dag.num_graphs + 1, dtype=torch.int64),
        origin=dag.origin,
        columns={**empty.columns, "graph": dag.columns["graph"]},
    )


def _with_common_strings(parts: Sequence[TypedDAG]) -> list[TypedDAG]:
    """Gives the graphs of several files one list of files, and one code for each string."""
    dictionaries: dict[Key, Sequence[str]] = {}
    files = tuple(dict.fromkeys(file for part in parts for file in part.files))
    columns = [{space: dict(group) for space, group in p.columns.items()} for p in parts]
    for key in parts[0].dictionaries:
        words = [part.dictionaries[key] for part in parts]
        if sum(map(len, words)) <= MOST_STRINGS:
            dictionaries[key] = tuple(dict.fromkeys(chain.from_iterable(words)))
            recoded = [recode(part, {key: dictionaries[key]}).columns for part in parts]
        else:
            dictionaries[key] = Texts(
                [
                    pair
                    for strings in words
                    for pair in (
                        strings.parts if isinstance(strings, Texts) else [_encoded(strings)]
                    )
                ]
            )
            begins = run_pointers(np.array([*map(len, words)])).tolist()
            recoded = [
                {key[0]: {key[1]: torch.where(codes < 0, codes, codes + begin)}}
                for part, begin in zip(parts, begins, strict=False)
                for codes in [part.columns[key[0]][key[1]]]
            ]
        for target, source in zip(columns, recoded, strict=True):
            target[key[0]][key[1]] = source[key[0]][key[1]]
    dags = []
    for part, group in zip(parts, columns, strict=True):
        names = torch.tensor([*map(files.index, part.files), -1])
        origin = torch.cat([names[part.origin[:, :1]], part.origin[:, 1:]], dim=1)
        dag = replace(part, columns=group, dictionaries=dictionaries, files=files, origin=origin)
        dags.append(_with_row_ptrs(part, dag))
    return dags


def _with_row_ptrs(source: TypedDAG, dag: TypedDAG) -> TypedDAG:
    """Copies the pointers to rows from graphs with the same nodes."""
    dag.row_ptrs.update(source.row_ptrs)
    return dag


def _encoded(words: Sequence[str]) -> tuple[IntArray, Array]:
    """[num_words + 1] where each word begins, and [num_bytes] their UTF-8."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    return run_pointers(np.array([*map(len, encoded)], np.int64)), text


def _decoded(begin: IntArray, text: Array) -> Iterator[str]:
    data, places = memoryview(text.data), begin.tolist()
    return (str(data[i:j], "utf-8", "surrogatepass") for i, j in pairwise(places))


def write_npy_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """The header of an `.npy` file, which has room for any number of rows."""
    facts = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, facts)


def _mapped(path: Path) -> Tensor:
    """The array of an `.npy` file; changes to it stay in this process."""
    with path.open("rb") as file:
        npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file)
        begin, size = file.tell(), file.seek(0, 2)
    if size != begin + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{path} was cut off")
    # Not numpy's: it holds the file open, and a process may have no more than some hundred open.
    data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    return data[begin:].view(kind).view(shape)
