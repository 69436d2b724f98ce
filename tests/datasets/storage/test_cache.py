"""The cache folder: its bound, and what empties it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage import cache
from graphfold.datasets.storage.packing import pack
from graphfold.errors import ConfigError


def write_copy(path: Path, size: int) -> None:
    """A file of so many bytes that ends as a stored copy does: manifest, its length, checksum."""
    manifest = json.dumps({"metadata": {"fingerprint": "f"}}).encode()
    end = manifest + len(manifest).to_bytes(8, "little")
    body = end.rjust(size - 32, b"0")
    path.write_bytes(body + hashlib.sha256(body).digest())


def copies(folder: Path, sizes: list[int]) -> list[Path]:
    """Stored copies of so many bytes, the first one the oldest."""
    paths = [folder / f"c{number}.graphs" for number in range(len(sizes))]
    for age, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        write_copy(path, size)
        os.utime(path, (1_000 + age, 1_000 + age))
    return paths


@pytest.mark.parametrize(
    ("limit", "left"),
    [("1", "0123"), ("1000e-9", "0123"), ("900e-9", "123"), ("500e-9", "3"), ("0", "3")],
)
def test_the_oldest_copies_are_removed(
    limit: str, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was just stored stays, however large; so does all that is no copy."""
    monkeypatch.setenv(cache.LIMIT, limit)
    paths = copies(tmp_path, [100, 200, 300, 400])
    (tmp_path / "listops.tsv").write_bytes(b"0" * 1000)
    removed = cache.remove_oldest(tmp_path, [paths[-1]])
    assert sorted(path.stem[1:] for path in tmp_path.glob("*.graphs")) == list(left)
    assert sorted(removed) == [path for path in paths if path.stem[1:] not in left]
    assert (tmp_path / "listops.tsv").exists()


def test_a_copy_that_was_read_is_young_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, stored = AdapterSpec(NAME), []
    for name in ("a", "b", "c"):
        path = write_expressions(tmp_path / name, random_expressions(20))
        stored.append(pack(spec, path, tmp_path / "cache", num_workers=0).stored)
        os.utime(stored[-1], (1_000 + len(stored),) * 2)
    pack(spec, tmp_path / "a", tmp_path / "cache", num_workers=0)
    monkeypatch.setenv(cache.LIMIT, str(2.5 * stored[0].stat().st_size / 1e9))
    path = write_expressions(tmp_path / "d", random_expressions(20))
    newest = pack(spec, path, tmp_path / "cache", num_workers=0).stored
    assert {*(tmp_path / "cache").glob("*.graphs")} == {stored[0], newest}


def test_files_of_the_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a cache that is full, and they do not count; whatever their names and contents."""
    monkeypatch.setenv(cache.LIMIT, "0")
    source = write_expressions(tmp_path / "a.txt", random_expressions(20))
    folder = tmp_path / "cache"
    stored = pack(AdapterSpec(NAME), source, folder, num_workers=0).stored
    contents = {
        "table.arrow": b"ARROW1" * 50,
        "empty.graphs": b"",
        "words.graphs": b"0" * 500,
        "cut.graphs": stored.read_bytes()[:-1],
        "list.graphs": b"[1]" + (3).to_bytes(8, "little") + b"0" * 32,
        "own.graphs/part.graphs": b"0" * 500,
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    outside = tmp_path / "elsewhere.graphs"
    outside.write_bytes(stored.read_bytes())
    (folder / "link.graphs").symlink_to(outside)
    other = write_expressions(tmp_path / "b.txt", random_expressions(20))
    newest = pack(AdapterSpec(NAME), other, folder, num_workers=0).stored
    assert {path.name for path in folder.iterdir()} == {
        *(Path(name).parts[0] for name in contents),
        "link.graphs",
        newest.name,
    }
    assert all((folder / name).read_bytes() == content for name, content in contents.items())


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_a_limit_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, text)
    with pytest.raises(ConfigError, match=f"GRAPHFOLD_CACHE_GB is '{text}', but it is a number of"):
        cache.most_bytes()


def test_clear_leaves_what_is_being_written(tmp_path: Path) -> None:
    copies(tmp_path, [110, 120])
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "pass.so").write_bytes(b"0" * 5)
    (tmp_path / ".packing-1").mkdir()
    assert cache.clear(tmp_path) == 235
    assert [path.name for path in tmp_path.iterdir()] == [".packing-1"]
    assert cache.clear(tmp_path / "absent") == 0


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_a_folder_that_another_process_removes_meanwhile_is_made_again(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there for `mkdir`, or was made by it, and gone a moment later."""
    inner, meanwhile = getattr(os, call), [True]

    def late(path: Path, *given: int, **named: int) -> int | None:
        if Path(path).name.startswith(".packing") and meanwhile:
            meanwhile.pop()
            if call == "mkdir":
                raise FileExistsError(path)
            Path(path).rmdir()
        result: int | None = inner(path, *given, **named)
        return result

    monkeypatch.setattr(os, call, late)
    with cache.packing_folder(tmp_path / "cache" / "a.graphs") as folder:
        assert [*folder.parent.iterdir()] == [folder]
        assert folder.name == ".packing-a"
    assert not meanwhile
    assert not folder.exists()
