"""Places of files: paths of this machine, and addresses of fsspec such as `s3://bucket/new.csv`.

The file for an address is made on this machine and put there when it is whole.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeAlias

from graphfold.continued import replace_note
from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.errors import ConfigError, DataError, GraphfoldError, first_line
from graphfold.files import check_output

#: A path, or an address as text.
Place: TypeAlias = Path | str

#: Protocols of stores where a file can be seen only when the upload is complete. On all others it
#: is written under a hidden name and then renamed.
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Turns any exception of the library of a file system into an error about the address."""
    try:
        yield
    except GraphfoldError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{address}: no such file. Correct the address.", path=address) from error
    except ImportError as error:
        raise ConfigError(
            f"{address}: needs a library that is not installed ({first_line(error)})."
        ) from error
    except Exception as error:
        raise DataError(
            f"{address}: cannot be reached ({first_line(error)}). Check address and access.",
            path=address,
        ) from error


def fetch(address: str, file: BinaryIO) -> None:
    """Copies what is at an address into a file.

    Raises:
        DataError: if it is not there, or cannot be reached.
    """
    import fsspec

    with reaching(address), fsspec.open(address, "rb") as content:
        shutil.copyfileobj(content, file)


def identity(place: Place) -> str:
    """A text that is equal for two names of one place."""
    if isinstance(place, Path):
        return str(place.resolve())
    with reaching(place):
        system, path = _system(place)
        return str(system.unstrip_protocol(path))


def below(folder: Place, name: Path) -> Place:
    """The place of a file in a folder."""
    return folder / name if isinstance(folder, Path) else f"{folder.rstrip('/')}/{name.as_posix()}"


def suffix_of(place: Place) -> str:
    """The ending of the name, such as `.csv`, in small letters."""
    return (place if isinstance(place, Path) else PurePosixPath(place)).suffix.lower()


def is_folder(place: Place) -> bool:
    """True if a folder is there, or the address says that one is meant by a slash at its end."""
    if isinstance(place, Path):
        return place.is_dir()
    with reaching(place):
        system, path = _system(place)
        return place.endswith("/") or bool(system.isdir(path))


def size_of(place: Place) -> int:
    """The bytes of a file.

    Raises:
        FileNotFoundError: if there is none.
    """
    if isinstance(place, Path):
        return place.stat().st_size
    system, path = _system(place)
    return int(system.size(path))


def read(place: Place) -> bytes:
    """The content of a small file.

    Raises:
        FileNotFoundError: if there is none.
    """
    if isinstance(place, Path):
        return place.read_bytes()
    system, path = _system(place)
    return bytes(system.cat_file(path))


def write_note(place: Place, content: bytes) -> None:
    """Writes a small file whole or not at all, and the folders above it."""
    if isinstance(place, Path):
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_note(place, content)
        return
    with made_here(place) as path:
        path.write_bytes(content)


def check_place(place: Place | None) -> None:
    """Raises, before any work, if a file cannot be written at a place.

    Raises:
        ConfigError: if it is no place for a file, or the library of its address is not installed.
        DataError: if the address cannot be reached.
    """
    if not isinstance(place, str):
        check_output(place)
    elif is_folder(place):
        raise ConfigError(f"{place}: is a folder. Name a file in it.")


@contextmanager
def made_here(place: Place) -> Iterator[Path]:
    """The file of this machine to write for a place: of a path itself.

    For an address it lies in the cache folder, under a name that the address decides, so that work
    that was broken off goes on from there. When it is whole, it is put at the address; so is what
    was written beside it, before.

    Raises:
        ConfigError: if it cannot be put there; the file is kept.
    """
    if isinstance(place, Path):
        yield place
        return
    folder = default_cache_dir() / "outputs" / hashlib.sha256(place.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PurePosixPath(place).name
    try:
        yield path
        try:
            _put(path, place)
        except Exception as error:
            raise ConfigError(
                f"{place}: cannot be written ({first_line(error)}). {path} keeps what was made: "
                "copy it there, or correct the address or your access and give the command again."
            ) from error
        shutil.rmtree(folder)
    finally:
        with suppress(OSError):
            folder.rmdir()  # if it is empty


def _put(path: Path, address: str) -> None:
    system, place = _system(address)
    beside = sorted(file for file in path.parent.rglob("*") if file.is_file() and file != path)
    for file in (*beside, path):
        name = file.relative_to(path.parent).as_posix()
        _put_file(system, file, str(PurePosixPath(place).parent / name))


def _put_file(system: Any, file: Path, place: str) -> None:
    """Puts a file, which is there as a whole or not at all."""
    protocols = {system.protocol} if isinstance(system.protocol, str) else {*system.protocol}
    if protocols & OBJECT_STORES:
        system.put_file(str(file), place)
        return
    folder = PurePosixPath(place).parent
    hidden = str(folder / f".{file.name}.tmp")
    system.makedirs(str(folder), exist_ok=True)
    try:
        system.put_file(str(file), hidden)
        if system.exists(place):
            system.rm_file(place)
        system.mv(hidden, place)
    except BaseException:
        with suppress(Exception):
            system.rm_file(hidden)
        raise


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(address)
    return system, str(path)
