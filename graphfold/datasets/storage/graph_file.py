"""Graphs in a file: flat columns one after the other, and a manifest that says where each lies.

    columns   numbers as they lie in memory, each column from a multiple of 64 bytes on
    strings   JSON: those of the columns of codes
    manifest  JSON: metadata, and where all of it lies
    length    of the manifest, 8 bytes
    checksum  the sha256 of all that is before it

The file is read through a memory map, where each column is a tensor without a copy.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import Schema, TypedDAG
from graphfold.dag.typed_dag import Dictionaries, pointers
from graphfold.datasets.storage.columns import Array, fields, from_columns

#: Columns begin at multiples of it, so that numbers lie where processors like them.
_ALIGNMENT = 64
_LENGTH, _CHECKSUM = 8, hashlib.sha256().digest_size
_BLOCK = 1 << 20


class GraphFileWriter:
    """Stores graphs that arrive a chunk at a time, in the memory of one chunk.

    Columns grow in separate files, which `finish` joins. The strings of the chunks are brought to
    common codes on the way.

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
        names = [field.name for field in self._fields] + [_count(space) for space in self._spaces]
        self._files: dict[str, BinaryIO] = {
            name: self._open.enter_context((folder / str(number)).open("w+b"))
            for number, name in enumerate(names)
        }
        self._num_rows = dict.fromkeys(names, 0)
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
            self._append(field.name, column)
        for space in self._spaces:
            self._append(_count(space), counts[space])
        self.num_graphs += len(counts["node"])

    def finish(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Writes all graphs to the file `path`, with `metadata` (plain values) in its manifest."""
        digest, places = hashlib.sha256(), {}
        with path.open("wb") as out:
            for name in self._files:
                places[name] = out.tell(), self._num_rows[name]
                for block in self._blocks(name):
                    digest.update(block)
                    out.write(block)
            words = [[*key, list(codes)] for key, codes in self._codes.items()]
            strings = json.dumps(words).encode()
            found = {"metadata": metadata, "num_graphs": self.num_graphs, "columns": places}
            manifest = json.dumps({**found, "strings": [out.tell(), len(strings)]}).encode()
            end = strings + manifest + len(manifest).to_bytes(_LENGTH, "little")
            digest.update(end)
            out.write(end + digest.digest())

    def _append(self, name: str, column: Array) -> None:
        self._files[name].write(np.ascontiguousarray(column).data)
        self._num_rows[name] += len(column)

    def _recode(self, key: tuple[str, str], codes: Array, words: tuple[str, ...]) -> Array:
        known = self._codes[key]
        # The last entry answers for -1, a missing value.
        lookup = [known.setdefault(word, len(known)) for word in words] + [-1]
        recoded: Array = np.array(lookup, dtype=np.int64)[codes]
        return recoded

    def _blocks(self, name: str) -> Iterator[bytes]:
        """The bytes of a column, and zeros up to where the next one begins."""
        file = self._files[name]
        size = file.tell()
        file.seek(0)
        while block := file.read(_BLOCK):
            yield block
        yield bytes(-size % _ALIGNMENT)


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a file that `GraphFileWriter` wrote; nothing else of it is looked at.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is no such file, or damaged.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        metadata: dict[str, Any] = _manifest(memory)["metadata"]
        return metadata


def read_graphs(path: Path, schema: Schema, files: tuple[str, ...]) -> TypedDAG:
    """All graphs of a file that `GraphFileWriter` wrote; only structure is copied into memory.

    The file is read whole, to compare it with its checksum.

    Args:
        path: the file.
        schema: of the graphs.
        files: the names of the files that the graphs were read from.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is damaged.
    """
    with path.open("rb") as file:
        # A private map: writing into a tensor by mistake changes neither the file nor others.
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    end = len(memory) - _CHECKSUM
    if hashlib.sha256(memoryview(memory)[: max(end, 0)]).digest() != memory[end:]:
        raise ValueError("the file is damaged: its checksum is another one")
    manifest = _manifest(memory)

    def tensor(name: str, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> Tensor:
        offset, num_rows = manifest["columns"][name]
        count = num_rows * int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return torch.empty(num_rows, *shape, dtype=dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
        return flat.view(num_rows, *shape)

    own = fields(schema)
    columns = {field.name: tensor(field.name, field.dtype, field.shape) for field in own}
    spaces = {field.space for field in own} - {"graph"}
    row_ptr = {space: pointers(tensor(_count(space), torch.int64)) for space in spaces}
    offset, size = manifest["strings"]
    stored = json.loads(memory[offset : offset + size])
    strings = {(space, name): tuple(words) for space, name, words in stored}
    return from_columns(schema, columns, row_ptr, manifest["num_graphs"], strings, files)


def _manifest(memory: mmap.mmap) -> dict[str, Any]:
    """The manifest of a file; ValueError if it has none."""
    end = len(memory) - _CHECKSUM - _LENGTH
    begin = end - int.from_bytes(memory[max(end, 0) : end + _LENGTH], "little")
    if begin < 0 or memory[begin : begin + 1] != b"{":
        raise ValueError("the file holds no graphs")
    manifest: dict[str, Any] = json.loads(memory[begin:end])
    return manifest


def _count(space: str) -> str:
    return f"{space}: rows per graph"
