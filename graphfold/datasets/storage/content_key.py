"""Keys of stored copies, and changes of an input while it is read."""

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
from graphfold.files import is_stream

if TYPE_CHECKING:
    from graphfold.datasets.adapter import Adapter
    from graphfold.datasets.readers.spec import AdapterSpec


def content_hash(adapter: Adapter, path: Path) -> str:
    """The sha256 of what an adapter reads: of the one file, or of the hashes of several.

    Names count within a folder; other files that belong to a file may be moved.

    Raises:
        DataError: if a file is absent or cannot be read.
    """
    try:
        files = adapter.sources(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if files == [path]:
        return file_hash(path)
    if not path.is_dir():
        return _sha256("\n".join(map(file_hash, files)))
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
        raise DataError.in_file(path, "no such file. Correct the path.") from error
    except IsADirectoryError as error:
        raise DataError.in_file(path, "is a folder. Name a file in it.") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


class InputState(NamedTuple):
    """The state of a file, which differs after a change."""

    path: Path
    size: int  # bytes
    modified: int  # ns
    inode: int  # differs if a new file took its place


def input_states(adapter: Adapter, paths: Iterable[Path]) -> list[InputState]:
    """The states of the files that an adapter reads for some paths; pipes have none."""
    states = []
    for path in paths:
        with suppress(OSError):  # the reader reports it
            for file in adapter.sources(path):
                s = file.stat()
                if stat.S_ISREG(s.st_mode):
                    states.append(InputState(file, s.st_size, s.st_mtime_ns, s.st_ino))
    return states


def refuse_change(before: Sequence[InputState], after: Sequence[InputState]) -> None:
    """Raises DataError if a file changed between two lists of states."""
    changed = sorted({state.path for state in {*before} ^ {*after}})
    if changed:
        raise DataError.in_file(
            changed[0],
            "the file changed while it was read. Wait until it is written, and start again.",
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
    """Raises DataError for a pipe or a device, which cannot be read twice."""
    if is_stream(path):
        raise DataError.in_file(
            path,
            "is a pipe or a device, but data are read more than once. Save them in a file first.",
        )


def _unreadable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or error
    return DataError.in_file(path, f"cannot be read ({reason}). Check it.")


def fingerprint(adapter: Adapter, spec: AdapterSpec, content: str, storage_format: int) -> str:
    """The hash of everything that stored graphs depend on.

    Args:
        adapter: its schema, its code and its libraries count.
        spec: its options.
        content: `content_hash` of the input.
        storage_format: the version of the layout of stored graphs.
    """
    facts = {
        "format": storage_format,
        "adapter": spec.name,
        "options": _plain(spec.options),
        "schema": adapter.schema.to_dict(),
        "code": [_code_hash(module) for module in adapter.code],
        "libraries": {name: _version(name) for name in sorted(adapter.libraries)},
        "content": content,
    }
    return _sha256(json.dumps(facts, sort_keys=True))


def copy_name(spec: AdapterSpec, path: Path) -> str:
    """The beginning of the names of stored copies of a file that is read with these options."""
    key = [str(path.absolute()), spec.name, _plain(spec.options)]
    stem = path.name.split(".")[0][:40]
    return f"{stem}-{_sha256(json.dumps(key, sort_keys=True))[:12]}"


def _plain(value: Any) -> Any:
    """A copy of dicts, lists, strings and numbers; other objects become text."""
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _code_hash(module_name: str) -> str:
    """The hash of the code of `dag`, and of the adapter's module or its package."""
    module = sys.modules[module_name]
    files = sorted(Path(dag.__path__[0]).glob("*.py"))
    if module_name.startswith(f"{datasets.__name__}."):
        files += sorted(Path(datasets.__path__[0]).rglob("*.py"))
    elif module.__package__:
        files += sorted(Path(str(module.__file__)).parent.glob("*.py"))
    elif getattr(module, "__file__", None):  # a prompt has none
        files.append(Path(str(module.__file__)))
    return _sha256(" ".join(file_hash(file) for file in files))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
