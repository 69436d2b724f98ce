"""Fingerprints: the names of stored copies, and whether an input changed while it was read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphfold import dag, datasets
from graphfold.errors import DataError

if TYPE_CHECKING:
    from graphfold.datasets.adapter import Adapter
    from graphfold.datasets.readers.spec import AdapterSpec


def content_hash(adapter: Adapter, path: Path) -> str:
    """The sha256 of what an adapter reads: of the one file, or of the names and hashes of several.

    Raises:
        DataError: if a file is absent or cannot be read.
    """
    try:
        files = adapter.sources(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if files == [path]:
        return file_hash(path)
    lines = [f"{os.path.relpath(file, path)} {file_hash(file)}" for file in sorted(files)]
    return _sha256("\n".join(lines))


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal; raises DataError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        refuse_pipe(path)
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file. Correct the path.", path=str(path)) from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder. Name a file in it.", path=str(path)) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


class InputState(NamedTuple):
    """The state of a file that is read, by which a change shows without reading it again."""

    path: Path
    size: int  # bytes
    modified: int  # ns
    inode: int  # another one where a new file took its place


def input_states(adapter: Adapter, paths: Iterable[Path]) -> list[InputState]:
    """The states of the files that an adapter reads for some paths; pipes have none."""
    states = []
    for path in paths:
        with suppress(OSError):  # the reader says what is wrong with it
            for file in adapter.sources(path):
                status = file.stat()
                if stat.S_ISREG(status.st_mode):
                    facts = status.st_size, status.st_mtime_ns, status.st_ino
                    states.append(InputState(file, *facts))
    return states


def refuse_change(before: Sequence[InputState], after: Sequence[InputState]) -> None:
    """Raises DataError if a file changed, so that what was read may be of two of its states."""
    changed = sorted({state.path for state in {*before} ^ {*after}})
    if changed:
        raise DataError(
            f"{changed[0]}: the file changed while it was read. Wait until it is written, and "
            "start again.",
            path=str(changed[0]),
        )


@contextmanager
def unchanged(adapter: Adapter, paths: Sequence[Path]) -> Iterator[None]:
    """Refuses files that change within a block in which an adapter reads them.

    Raises:
        DataError: at the end of the block.
    """
    before = input_states(adapter, paths)
    yield
    refuse_change(before, input_states(adapter, paths))


def refuse_pipe(path: Path) -> None:
    """Raises DataError for what cannot be read twice."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # whoever opens it will say so
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(
            f"{path}: is a pipe or a device, but data are read more than once. Save them in a file "
            "first.",
            path=str(path),
        )


def _unreadable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or error
    return DataError(f"{path}: cannot be read ({reason}). Check it.", path=str(path))


def fingerprint(adapter: Adapter, spec: AdapterSpec, content: str, storage_format: int) -> str:
    """The hash of everything that the stored graphs depend on.

    Args:
        adapter: the adapter itself, for its schema, its code and its libraries.
        spec: its options.
        content: `content_hash` of the input.
        storage_format: the version of the layout of stored graphs.
    """
    facts = {
        "format": storage_format,
        "adapter": class_path(adapter),
        "options": plain(spec.options),
        "schema": adapter.schema.to_dict(),
        "code": [_code_hash(module) for module in adapter.code],
        "libraries": {name: _version(name) for name in sorted(adapter.libraries)},
        "content": content,
    }
    return _sha256(json.dumps(facts, sort_keys=True))


def copy_name(adapter: Adapter, spec: AdapterSpec, path: Path) -> str:
    """The beginning of the names of stored copies of a file that is read with these options."""
    key = [str(path.absolute()), class_path(adapter), plain(spec.options)]
    stem = path.name.split(".")[0][:40]
    return f"{stem}-{_sha256(json.dumps(key, sort_keys=True))[:12]}"


def class_path(adapter: Adapter) -> str:
    """The dotted path of an adapter's class."""
    return f"{type(adapter).__module__}.{type(adapter).__qualname__}"


def plain(value: Any) -> Any:
    """A copy of dicts, lists, strings and numbers only; anything else as its text."""
    return json.loads(json.dumps(value, sort_keys=True, default=_as_list_or_text))


def _as_list_or_text(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


def _code_hash(module_name: str) -> str:
    """The hash of the format's code and of the adapter's module, with its package if it has one."""
    module = sys.modules[module_name]
    files = sorted(Path(dag.__path__[0]).glob("*.py"))
    if module_name.startswith(f"{datasets.__name__}."):
        files += sorted(Path(datasets.__path__[0]).rglob("*.py"))
    elif module.__package__:
        files += sorted(Path(str(module.__file__)).parent.glob("*.py"))
    elif getattr(module, "__file__", None):  # typed in at a prompt, it has no file
        files.append(Path(str(module.__file__)))
    return _sha256(" ".join(file_hash(file) for file in files))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
