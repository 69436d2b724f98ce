"""The standard library of the running Python as a corpus: its files, divided into parts."""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from graphfold.datasets.corpora.corpus import PARTS
from graphfold.errors import DataError

#: Folders that are left out: tests, files made by a program, and what others have installed.
LEFT_OUT = ("test", "tests", "encodings", "lib2to3", "site-packages", "dist-packages")

#: Of 10 files, so many are for train, val and test.
_SHARES = (8, 1, 1)


def stdlib_files() -> dict[str, list[Path]]:
    """The files of each part, relative to the library.

    Raises:
        DataError: if this Python carries no source of its library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    by_part: dict[str, list[Path]] = {part: [] for part in PARTS}
    for file in files:
        if not {*LEFT_OUT} & {*file.parts} and file.parts[0] != "config":
            by_part[_part(file.as_posix())].append(file)
    for part, found in by_part.items():
        if not found:
            raise DataError(
                f"{root}: holds no source for the part {part}. Install the source of Python's "
                "library, or set data.path to a folder of Python files.",
                path=str(root),
            )
    return by_part


def copy_stdlib(folder: Path, by_part: Mapping[str, list[Path]]) -> None:
    """Copies the files into one folder per part; all of it is there at once, or nothing."""
    root = Path(sysconfig.get_path("stdlib"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        for part, files in by_part.items():
            for file in files:
                (made / part / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / file, made / part / file)
        made.chmod(0o755)
        os.replace(made, folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not folder.is_dir():  # unless another process was quicker
            raise


def _part(file: str) -> str:
    """The part of a file, by a hash of its name."""
    place = int.from_bytes(hashlib.sha256(file.encode()).digest()[:8], "big") % sum(_SHARES)
    bounds = (_SHARES[0], _SHARES[0] + _SHARES[1])
    return PARTS[sum(place >= bound for bound in bounds)]
