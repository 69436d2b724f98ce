"""Graphs in an Arrow file: one row per graph, ragged list columns, read through a memory map.

The file is an ordinary Arrow IPC file, readable by any Arrow library. All graphs are in one record
batch, so that each column is one piece of memory and becomes a tensor without a copy.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphfold.dag import Schema, TypedDAG
from graphfold.dag.typed_dag import Dictionaries
from graphfold.datasets.storage.columns import Array, Field, fields, from_columns

_METADATA = b"graphfold"

#: Key of the sha256 of the file, which is computed with zeros in its own place.
_CHECKSUM, _NO_CHECKSUM = "checksum", "0" * 64


class GraphFileWriter:
    """Stores graphs that arrive a chunk at a time, in the memory of one chunk.

    Columns grow in separate files; `finish` turns them into one Arrow file. The strings of
    the chunks are brought to common codes on the way.

    Args:
        schema: of all graphs.
        folder: an empty folder for the columns while they grow.
    """

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._fields = fields(schema)
        self._codes: dict[tuple[str, str], dict[str, int]] = {
            field.dictionary: {} for field in self._fields if field.dictionary
        }
        self._open = ExitStack()
        self._spaces = sorted({field.space for field in self._fields} - {"graph"})
        names = [field.name for field in self._fields] + [_ptr(space) for space in self._spaces]
        self._files: dict[str, BinaryIO] = {
            name: self._open.enter_context((folder / str(number)).open("w+b"))
            for number, name in enumerate(names)
        }
        self.num_graphs = 0

    def __enter__(self) -> GraphFileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def append(
        self,
        columns: Mapping[str, Array],
        counts: Mapping[str, Array],
        dictionaries: Dictionaries,
    ) -> None:
        """Adds graphs.

        Args:
            columns: as from `columns.to_columns`.
            counts: as from `columns.row_counts`.
            dictionaries: the strings of the columns of codes.
        """
        for field in self._fields:
            column = columns[field.name]
            if field.dictionary:
                column = self._recode(field.dictionary, column, dictionaries[field.dictionary])
            self._files[field.name].write(np.ascontiguousarray(column).data)
        for space in self._spaces:
            self._files[_ptr(space)].write(np.ascontiguousarray(counts[space]).data)
        self.num_graphs += len(counts["node"])

    def finish(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Writes all graphs to the Arrow file `path`, with `metadata` (plain values) inside."""
        arrays = [self._array(field) for field in self._fields]
        text = {_METADATA: json.dumps({**metadata, _CHECKSUM: _NO_CHECKSUM}).encode()}
        names = [field.name for field in self._fields]
        schema = pa.schema(
            [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)],
            metadata=text,
        )
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(batch)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            checksum = hashlib.sha256(memory).hexdigest().encode()
            for place in _checksum_places(memory):
                memory[place] = checksum

    def _recode(self, key: tuple[str, str], codes: Array, words: tuple[str, ...]) -> Array:
        known = self._codes[key]
        # The last entry answers for -1, a missing value.
        lookup = [known.setdefault(word, len(known)) for word in words] + [-1]
        recoded: Array = np.array(lookup, dtype=np.int64)[codes]
        return recoded

    def _array(self, field: Field) -> pa.Array:
        values = self._read(field.name, _numpy_dtype(field.dtype))
        array = self._words(field.dictionary, values) if field.dictionary else _numbers(values)
        for size in reversed(field.shape):
            array = pa.FixedSizeListArray.from_arrays(array, size)
        if field.space == "graph":
            return array
        counts = self._read(_ptr(field.space), np.dtype(np.int64))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return pa.LargeListArray.from_arrays(_numbers(offsets), array)

    def _words(self, key: tuple[str, str], codes: Array) -> pa.Array:
        return pa.DictionaryArray.from_arrays(_numbers(codes, codes >= 0), _texts(self._codes[key]))

    def _read(self, name: str, dtype: np.dtype) -> Array:
        file = self._files[name]
        file.flush()
        if file.tell() == 0:
            return np.empty(0, dtype)
        array: Array = np.memmap(file, dtype, "r")
        return array


# `pa.array` would do for these two, but it imports pandas where that is installed, and so do
# `fill_null` and `to_numpy`: a third of a second, more than it takes to write a small corpus.
def _numbers(values: Array, is_there: Array | None = None) -> pa.Array:
    """Numbers as an Arrow array; where `is_there` is given, those without a value are null."""
    data = np.packbits(values, bitorder="little") if values.dtype == bool else values
    present = None if is_there is None else np.packbits(is_there, bitorder="little")
    buffers = [None if part is None else pa.py_buffer(part) for part in (present, data)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def _texts(texts: Collection[str]) -> pa.Array:
    """Strings as an Arrow array."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a file that `GraphFileWriter` wrote.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is no such file, or damaged.
    """
    with pa.memory_map(str(path)) as source:
        return _metadata(pa.ipc.open_file(source))


def read_graphs(path: Path, schema: Schema, files: tuple[str, ...]) -> TypedDAG:
    """All graphs of a file that `GraphFileWriter` wrote; only structure is copied into memory.

    The file is read whole, to compare it with its checksum.

    Args:
        path: the Arrow file.
        schema: of the graphs.
        files: the names of the files that the graphs were read from.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is damaged.
    """
    with path.open("rb") as file:
        # A private map: writing into a tensor by mistake changes neither the file nor others.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    _verify(mapped)
    memory = _Memory(mapped)
    batch = pa.ipc.open_file(pa.BufferReader(memory.buffer)).get_batch(0)
    columns: dict[str, Tensor] = {}
    row_ptr: dict[str, Tensor] = {}
    dictionaries: dict[tuple[str, str], tuple[str, ...]] = {}
    for field, array in zip(fields(schema), batch.columns, strict=True):
        if field.space != "graph":
            row_ptr[field.space] = memory.tensor(array.offsets, torch.int64)
            array = array.values
        for _ in field.shape:
            array = array.values
        if field.dictionary:
            dictionaries[field.dictionary] = tuple(array.dictionary.to_pylist())
            array = array.indices  # under a null lies -1, our code of a missing value
        columns[field.name] = memory.tensor(array, field.dtype).reshape(-1, *field.shape)
    return from_columns(schema, columns, row_ptr, batch.num_rows, dictionaries, files)


def _verify(memory: mmap.mmap) -> None:
    """Raises ValueError unless the file has the content that it was written with."""
    places = _checksum_places(memory)
    found = {memory[place] for place in places}
    for place in places:  # in a private map
        memory[place] = _NO_CHECKSUM.encode()
    if found != {hashlib.sha256(memory).hexdigest().encode()}:
        raise ValueError("the file is damaged: its checksum is another one")


def _checksum_places(memory: mmap.mmap) -> list[slice]:
    """The places of the checksum: Arrow writes metadata in front of all columns and after them."""
    mark = f'"{_CHECKSUM}": "'.encode()
    begins = {memory.find(mark), memory.rfind(mark)} - {-1}
    first = [begin + len(mark) for begin in begins]
    return [slice(begin, begin + len(_NO_CHECKSUM)) for begin in first]


class _Memory:
    """A memory map, and Arrow arrays in it as tensors that share it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.buffer = pa.py_buffer(memory)

    def tensor(self, array: pa.Array, dtype: torch.dtype) -> Tensor:
        """The values as a tensor: in place, or a copy if they are bools."""
        if len(array) == 0:
            return torch.empty(0, dtype=dtype)
        values = array.buffers()[1]
        if dtype == torch.bool:  # Arrow packs them in bits
            bits = np.unpackbits(np.frombuffer(values, np.uint8), bitorder="little")
            return torch.from_numpy(bits[array.offset :][: len(array)].astype(bool))
        place = values.address - self.buffer.address + array.offset * dtype.itemsize
        return torch.frombuffer(self._memory, dtype=dtype, count=len(array), offset=place)


def _metadata(reader: pa.RecordBatchFileReader) -> dict[str, Any]:
    found = (reader.schema.metadata or {}).get(_METADATA)
    if found is None:
        raise ValueError("the file holds no graphs")
    data: dict[str, Any] = json.loads(found)
    data.pop(_CHECKSUM, None)
    return data


def _ptr(space: str) -> str:
    return f"{space}: rows per graph"


def _numpy_dtype(dtype: torch.dtype) -> np.dtype:
    return torch.empty(0, dtype=dtype).numpy().dtype
