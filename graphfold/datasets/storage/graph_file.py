"""Graphs in a file, one after the other: each is read by itself, or all of them at once.

    records   each graph's rows: field after field, each from a multiple of 8 bytes on
    starts    [num_graphs + 1] int64, the word (of 8 bytes) where each graph begins
    counts    [num_graphs, num_spaces] int32, the rows of each graph in each space
    strings   of each column of codes: [num_strings + 1] int64 where each begins, and their UTF-8
    manifest  JSON: metadata, and where all of it lies
    length    of the manifest, 8 bytes
    checksum  the sha256 of all that is before it

A corpus is read in random order, so all that belongs to a graph lies together: two kilobytes for a
molecule. Starts, counts and strings are mapped into memory; records are read when they are needed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import weakref
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphfold.dag import Schema, TypedDAG
from graphfold.dag.depth import run_pointers, runs
from graphfold.dag.typed_dag import Dictionaries
from graphfold.datasets.storage.columns import Array, fields, from_columns
from graphfold.errors import DataError

Numbers = NDArray[np.int64]

_WORD, _LENGTH, _CHECKSUM = 8, 8, hashlib.sha256().digest_size
_BLOCK = 1 << 20

#: So many strings of a column are held in memory to find equal ones; those beyond may be repeated.
MOST_STRINGS = 1 << 17

#: So many graphs are read at a time where all of them are looked at: some megabytes.
CHUNK = 1024

#: A space with one row for each graph.
_GRAPH = "graph"


class Layout:
    """The places of the fields of a graph in its record.

    Args:
        schema: of the graphs.
    """

    def __init__(self, schema: Schema) -> None:
        self.fields = fields(schema)
        self.spaces = sorted({field.space for field in self.fields} - {_GRAPH})
        columns = [*self.spaces, _GRAPH]
        self._space = np.array([columns.index(field.space) for field in self.fields])
        self.row_bytes = [math.prod(field.shape) * field.dtype.itemsize for field in self.fields]
        # Rows are moved in the largest units of a power of 2 that they consist of.
        self.units = [math.gcd(size, _WORD) for size in self.row_bytes]

    def places(self, counts: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The first word of each field of each graph, its rows, and where the graphs begin.

        Shape:
            counts: [num_graphs, num_spaces]
            returns: [num_fields, num_graphs], the same, [num_graphs + 1]
        """
        rows = np.concatenate([counts.T, np.ones((1, len(counts)), np.int64)])[self._space]
        words = -(-rows * np.array(self.row_bytes)[:, None] // _WORD)
        starts = run_pointers(words.sum(0))
        return words.cumsum(0) - words + starts[:-1], rows, starts

    def units_of(self, field: int, first: Numbers, rows: Numbers) -> Numbers:
        """The positions of the rows of a field in the records, counted in its units."""
        unit = self.units[field]
        begin = first * (_WORD // unit)
        positions: Numbers = runs(begin, begin + rows * (self.row_bytes[field] // unit))
        return positions


def _unit_type(size: int) -> np.dtype[Any]:
    return np.dtype(f"u{size}")


class GraphFileWriter:
    """Stores graphs that arrive a chunk at a time, in the memory of one chunk.

    The strings of the chunks are brought to common codes on the way.

    Args:
        schema: of all graphs.
        folder: an empty folder for the parts of the file while they grow.
    """

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._layout = Layout(schema)
        self._codes: dict[tuple[str, str], dict[str, int]] = {
            field.dictionary: {} for field in self._layout.fields if field.dictionary
        }
        self._open = ExitStack()
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        for name in ("records", "starts", "counts"):
            self._grow(name, b"")
        self._ends = dict.fromkeys(self._codes, 0)  # of the bytes of the strings
        self._num_strings = dict.fromkeys(self._codes, 0)
        for number in range(len(self._codes)):
            self._grow(f"text {number}", b"")
            self._grow(f"offsets {number}", np.zeros(1, np.int64).data)
        self._num_words = 0
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
        layout = self._layout
        rows = np.stack([counts[space] for space in layout.spaces], 1).astype(np.int64)
        first, num_rows, starts = layout.places(rows)
        records = np.zeros(int(starts[-1]), np.int64)
        for number, field in enumerate(layout.fields):
            column = columns[field.name]
            if field.dictionary:
                column = self._recode(field.dictionary, column, dictionaries[field.dictionary])
            unit = _unit_type(layout.units[number])
            if layout.row_bytes[number]:
                at = layout.units_of(number, first[number], num_rows[number])
                flat = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
                records.view(unit)[at] = flat.view(unit)
        self._grow("records", records.data)
        self._grow("starts", (starts[:-1] + self._num_words).data)
        self._grow("counts", rows.astype(np.int32).data)
        self._num_words += int(starts[-1])
        self.num_graphs += len(rows)

    def finish(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Writes all graphs to the file `path`, with `metadata` (plain values) in its manifest."""
        self._grow("starts", np.array([self._num_words]).data)
        digest, places = hashlib.sha256(), {}
        with path.open("wb") as out:

            def write(block: bytes) -> None:
                digest.update(block)
                out.write(block)

            for name, file in self._files.items():
                places[name] = [out.tell(), file.tell()]
                file.seek(0)
                while block := file.read(_BLOCK):
                    write(block)
                write(bytes(-out.tell() % _WORD))
            found = {"metadata": metadata, "num_graphs": self.num_graphs, "places": places}
            manifest = json.dumps({**found, "strings": [*self._codes]}).encode()
            write(manifest + len(manifest).to_bytes(_LENGTH, "little"))
            out.write(digest.digest())

    def _grow(self, name: str, data: bytes | memoryview) -> None:
        if name not in self._files:
            path = self._folder / name.replace(" ", "-")
            self._files[name] = self._open.enter_context(path.open("w+b"))
        self._files[name].write(data)

    def _recode(self, key: tuple[str, str], codes: Array, words: Sequence[str]) -> Array:
        known = self._codes[key]
        new: list[bytes] = []
        lookup = np.full(len(words) + 1, -1)  # the last entry answers for -1, a missing value
        for number, word in enumerate(words):
            code = known.get(word)
            if code is None:
                code = self._num_strings[key] + len(new)
                new.append(word.encode("utf-8", "surrogatepass"))
                if len(known) < MOST_STRINGS:
                    known[word] = code
            lookup[number] = code
        place = list(self._codes).index(key)
        ends = self._ends[key] + np.cumsum([len(word) for word in new], dtype=np.int64)
        self._grow(f"text {place}", b"".join(new))
        self._grow(f"offsets {place}", ends.data)
        self._num_strings[key] += len(new)
        self._ends[key] = int(ends[-1]) if new else self._ends[key]
        recoded: Array = lookup[codes]
        return recoded


class _Strings(Sequence[str]):
    """Strings that are looked up one by one."""

    @abstractmethod
    def _at(self, index: int) -> str:
        """The string with a number from 0 on."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._at(index % len(self))


class StoredStrings(_Strings):
    """Strings that stay in their file until they are asked for.

    Args:
        offsets: [num_strings + 1] where each begins in the text, in bytes.
        text: all of them, in UTF-8.
    """

    def __init__(self, offsets: Numbers, text: memoryview) -> None:
        self._offsets = offsets
        self._text = text

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _BLOCK):
            for begin, end in pairwise(self._offsets[first : first + _BLOCK + 1].tolist()):
                yield self._between(begin, end)

    def _at(self, index: int) -> str:
        return self._between(*self._offsets[index : index + 2].tolist())

    def _between(self, begin: int, end: int) -> str:
        return str(self._text[begin:end], "utf-8", "surrogatepass")


class ManyStrings(_Strings):
    """The strings of several files, one after the other.

    Attributes:
        first: [num_files + 1] where those of each file begin.
    """

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts
        self.first = run_pointers(np.array([len(part) for part in parts]))

    def __len__(self) -> int:
        return int(self.first[-1])

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def _at(self, index: int) -> str:
        part = int(np.searchsorted(self.first, index, side="right")) - 1
        return self._parts[part][index - int(self.first[part])]


class GraphFile:
    """A file that `GraphFileWriter` wrote, checked against its checksum.

    Args:
        path: the file.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is damaged.
        DataError: if too many files are open.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise DataError(
                f"{path}: too many files are open. Allow more with ulimit -n, or join the files.",
                path=str(path),
            ) from error
        weakref.finalize(self, os.close, descriptor)
        self._descriptor = descriptor
        _check_sum(descriptor)
        self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        manifest = _manifest(self._memory)
        self.size = len(self._memory)
        self.metadata: dict[str, Any] = manifest["metadata"]
        self.num_graphs: int = manifest["num_graphs"]
        self._places: dict[str, tuple[int, int]] = manifest["places"]
        self.starts = self._numbers("starts", np.int64)
        width = self._places["counts"][1] // (4 * max(self.num_graphs, 1))
        self.counts = self._numbers("counts", np.int32).reshape(self.num_graphs, width)
        self.strings = {
            (space, name): self._strings(f"offsets {k}", f"text {k}")
            for k, (space, name) in enumerate(manifest["strings"])
        }

    def read(self, first: int, last: int, is_mapped: bool = False) -> bytes | memoryview:
        """The records of the graphs first .. last - 1; mapped ones count as memory once touched."""
        begin, end = int(self.starts[first]) * _WORD, int(self.starts[last]) * _WORD
        if is_mapped:
            base = self._places["records"][0]
            return memoryview(self._memory)[base + begin : base + end]
        parts, base = [], self._places["records"][0]
        while begin < end:  # one call of the system gives no more than 2 GB
            parts.append(os.pread(self._descriptor, end - begin, base + begin))
            if not parts[-1]:
                raise ValueError("the file was cut off")
            begin += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _numbers(self, name: str, dtype: type[np.generic]) -> Array:
        offset, size = self._places[name]
        count = size // np.dtype(dtype).itemsize
        return np.frombuffer(self._memory, dtype, count, offset) if count else np.empty(0, dtype)

    def _strings(self, offsets: str, text: str) -> StoredStrings:
        offset, size = self._places[text]
        return StoredStrings(
            self._numbers(offsets, np.int64), memoryview(self._memory)[offset : offset + size]
        )


class StoredGraphs:
    """The graphs of several files as one corpus, of which any can be read.

    Args:
        files: the stored copies.
        schema: of the graphs.
        names: the file that each copy was made of.
        is_whole: whether all graphs are to be read at once, so that all strings are as well.
    """

    def __init__(
        self, files: Sequence[GraphFile], schema: Schema, names: Sequence[str], is_whole: bool
    ) -> None:
        self.files = files
        self.schema = schema
        self.names = tuple(dict.fromkeys(names))
        self._name = np.array([self.names.index(name) for name in names])
        self.is_whole = is_whole
        self._layout = Layout(schema)
        self._first = run_pointers(np.array([file.num_graphs for file in files]))

    @property
    def num_graphs(self) -> int:
        """The number of all graphs."""
        return int(self._first[-1])

    @cached_property
    def _strings(self) -> dict[tuple[str, str], tuple[Sequence[str], Numbers, Numbers | None]]:
        """The strings of all files, where those of each begin, and the code of each of them.

        There is None for the codes where a string is known by its place in all files.
        """
        strings: dict[tuple[str, str], tuple[Sequence[str], Numbers, Numbers | None]] = {}
        for key in (field.dictionary for field in self._layout.fields if field.dictionary):
            joined = ManyStrings([file.strings[key] for file in self.files])
            if not self.is_whole and len(joined) > MOST_STRINGS:
                strings[key] = joined, joined.first, None
                continue
            codes: dict[str, int] = {}
            table = [codes.setdefault(word, len(codes)) for word in joined]
            strings[key] = tuple(codes), joined.first, np.array(table, np.int64)
        return strings

    @cached_property
    def dictionaries(self) -> Dictionaries:
        """The strings that the codes of the columns stand for."""
        return {key: strings for key, (strings, _, _) in self._strings.items()}

    def select(self, graphs: Tensor | Sequence[int] | range) -> TypedDAG:
        """The graphs with the given numbers, in the given order, as one `TypedDAG`.

        Raises:
            DataError: if a file was changed meanwhile.
        """
        numbers = np.asarray(graphs, dtype=np.int64).reshape(-1)
        columns, counts = self._columns(numbers, {field.space for field in self._layout.fields})
        row_ptr = {
            space: torch.from_numpy(run_pointers(counts[:, k]))
            for k, space in enumerate(self._layout.spaces)
        }
        return from_columns(
            self.schema, columns, row_ptr, len(numbers), self.dictionaries, self.names
        )

    def num_rows(self, space: str) -> Tensor:
        """[num_graphs] how many rows each graph has in a space, such as "node" or "output"."""
        column = self._layout.spaces.index(space)
        parts = [file.counts[:, column] for file in self.files if file.num_graphs]
        rows = np.concatenate([np.empty(0, np.int32), *parts])
        return torch.from_numpy(rows.astype(np.int64))

    def chunks(self, graphs: Tensor) -> Iterator[TypedDAG]:
        """The graphs with the given numbers, `CHUNK` at a time."""
        return (self.select(graphs[k : k + CHUNK]) for k in range(0, len(graphs), CHUNK))

    @cached_property
    def facts(self) -> TypedDAG:
        """All graphs without their nodes: the columns of whole graphs, and where they come from."""
        empty, count = self.select([]), self.num_graphs
        origin = empty.origin.new_empty(count, *empty.origin.shape[1:])
        columns = {
            name: column.new_empty(count, *column.shape[1:])
            for name, column in empty.columns[_GRAPH].items()
        }
        for first in range(0, count, CHUNK):  # in place: parts and whole would take twice as much
            rows = slice(first, min(first + CHUNK, count))
            part, _ = self._columns(np.arange(rows.start, rows.stop), {_GRAPH})
            origin[rows] = part["origin"]
            for name, column in columns.items():
                column[rows] = part[f"{_GRAPH}/{name}"]
        return replace(
            empty,
            num_graphs=count,
            output_ptr=torch.zeros(1, dtype=torch.int64).expand(count + 1),
            origin=origin,
            columns={**empty.columns, _GRAPH: columns},
        )

    def whole(self) -> TypedDAG:
        """All graphs."""
        return self.select(np.arange(self.num_graphs))  # type: ignore[arg-type]

    def _columns(
        self, numbers: Numbers, spaces: Collection[str]
    ) -> tuple[dict[str, Tensor], Numbers]:
        """The columns of some graphs in some spaces, and [num_selected, num_spaces] their rows."""
        file_of = np.searchsorted(self._first, numbers, side="right") - 1
        records, counts = self._read(numbers, file_of)
        layout = self._layout
        first, rows, _ = layout.places(counts)
        columns: dict[str, Tensor] = {}
        for k, field in enumerate(layout.fields):
            if field.space not in spaces:
                continue
            if not layout.row_bytes[k]:
                shape = (int(rows[k].sum()), *field.shape)
                columns[field.name] = torch.empty(shape, dtype=field.dtype)
                continue
            units = records.view(_unit_type(layout.units[k]))
            values = units.take(layout.units_of(k, first[k], rows[k])).view(np.uint8)
            column = torch.from_numpy(values).view(field.dtype).view(-1, *field.shape)
            if field.dictionary:
                column = self._recode(field.dictionary, column, file_of.repeat(rows[k]))
            columns[field.name] = column
        origin = columns["origin"][:, 0]  # of some graphs nobody knows where they come from
        origin.copy_(torch.where(origin < 0, origin, torch.from_numpy(self._name[file_of])))
        return columns, counts

    def _read(self, numbers: Numbers, file_of: Numbers) -> tuple[Numbers, Numbers]:
        """The records of some graphs, and [num_selected, num_spaces] their rows."""
        local = numbers - self._first[file_of]
        breaks = np.flatnonzero((np.diff(local) != 1) | (np.diff(file_of) != 0)) + 1
        bounds = [0, *breaks.tolist(), len(numbers)] if len(numbers) else []
        records, counts = [], [np.empty((0, len(self._layout.spaces)), np.int64)]
        for begin, end in pairwise(bounds):
            file, at = self.files[file_of[begin]], int(local[begin])
            try:
                records.append(file.read(at, at + end - begin, self.is_whole))
            except (OSError, ValueError) as error:
                name = self.names[self._name[file_of[begin]]]
                raise DataError(
                    f"{name}: its stored copy cannot be read ({error}). Start again, or set "
                    "data.cache_dir to another folder.",
                    path=name,
                ) from error
            counts.append(file.counts[at : at + end - begin].astype(np.int64))
        joined = records[0] if len(records) == 1 else b"".join(records)
        return np.frombuffer(joined, np.int64), np.concatenate(counts)

    def _recode(self, key: tuple[str, str], codes: Tensor, file_of: Numbers) -> Tensor:
        """Codes of the strings of all files, from those of each file; -1 stays."""
        _, first, table = self._strings[key]
        own = codes.numpy()
        moved = own + first[file_of].reshape(-1, *[1] * (own.ndim - 1))
        joined = moved if table is None else np.append(table, -1)[np.where(own < 0, -1, moved)]
        return torch.from_numpy(np.where(own < 0, -1, joined))


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
    """All graphs of one file that `GraphFileWriter` wrote.

    Args:
        path: the file.
        schema: of the graphs.
        files: the name of the file that the graphs were read from, if they were.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is damaged.
    """
    stored = StoredGraphs([GraphFile(path)], schema, files or [str(path)], is_whole=True)
    return replace(stored.whole(), files=files)


def _check_sum(descriptor: int) -> None:
    """Compares a file with its checksum, a block at a time; raises ValueError if they differ."""
    left = os.fstat(descriptor).st_size - _CHECKSUM
    digest, place = hashlib.sha256(), 0
    while place < left and (block := os.pread(descriptor, min(_BLOCK, left - place), place)):
        digest.update(block)
        place += len(block)
    if left < 0 or digest.digest() != os.pread(descriptor, _CHECKSUM, left):
        raise ValueError("the file is damaged: its checksum is another one")


def _manifest(memory: mmap.mmap) -> dict[str, Any]:
    """The manifest of a file; ValueError if it has none."""
    end = len(memory) - _CHECKSUM - _LENGTH
    begin = end - int.from_bytes(memory[max(end, 0) : end + _LENGTH], "little")
    if begin < 0 or memory[begin : begin + 1] != b"{":
        raise ValueError("the file holds no graphs")
    manifest: dict[str, Any] = json.loads(memory[begin:end])
    return manifest
