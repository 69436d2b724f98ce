"""The standard library as a corpus: every file in one part, copied whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graphfold.datasets.corpora import python_stdlib as stdlib
from graphfold.datasets.corpora.corpus_makers import make_python_stdlib
from graphfold.errors import DataError


def library(folder: Path) -> Path:
    for number in range(40):
        (folder / f"module{number}.py").write_text(f"def f(x, y): return {number}\n")
    for left_out in ("test", "site-packages"):
        (folder / left_out).mkdir()
        (folder / left_out / "a.py").write_text("def g(x, y): pass\n")
    (folder / "package").mkdir()
    (folder / "package" / "b.py").write_text("def g(x, y): pass\n")
    return folder


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lib"
    folder.mkdir()
    library(folder)
    monkeypatch.setattr(stdlib.sysconfig, "get_path", lambda name: str(folder))
    return folder


def test_every_file_is_in_one_part(small: Path, tmp_path: Path) -> None:
    made = make_python_stdlib(tmp_path / "cache")
    assert [part for _, part in made] == ["train", "val", "test"]
    copied = [file.relative_to(path).as_posix() for path, _ in made for file in path.rglob("*.py")]
    assert len(copied) == len({*copied}) == 41
    assert "package/b.py" in copied
    assert not [name for name in copied if name.startswith(("test/", "site-packages/"))]
    sizes = [len(list(path.rglob("*.py"))) for path, _ in made]
    assert sizes[0] > sizes[1] > 0
    assert sizes[2] > 0


def test_the_real_library_is_divided_by_its_names() -> None:
    parts = stdlib.stdlib_files()
    names = [file.as_posix() for files in parts.values() for file in files]
    assert len(names) == len({*names}) > 100
    assert {"ast.py", "json/decoder.py"} <= {*names}
    assert 0.7 < len(parts["train"]) / len(names) < 0.9


def test_a_broken_copy_leaves_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError("disk full")

    parts = stdlib.stdlib_files()
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="disk full"):
        stdlib.copy_stdlib(tmp_path / "made" / "x", parts)
    assert list((tmp_path / "made").iterdir()) == []


def test_a_library_without_source_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdlib.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(DataError, match="holds no source for the part train"):
        stdlib.stdlib_files()
