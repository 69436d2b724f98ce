"""Packing: once, whole or not at all, and again when something changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from postfix_adapter import NAME, PostfixAdapter, random_expressions, write_expressions

from graphfold import progress
from graphfold.dag import validate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Record, read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage import content_key, packing
from graphfold.datasets.storage.packing import pack, refuse_empty
from graphfold.errors import DataError, LeftOut, RecordError

SPEC = AdapterSpec(NAME)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = random_expressions(600)
    lines[300] = "? 1 2 +"
    return write_expressions(tmp_path / "f.txt", lines)


def spoil(file: Path) -> None:
    lines = file.read_text().splitlines()
    lines[10], lines[590] = "1 2", "x"
    write_expressions(file, lines)


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_chunks(*_: object) -> None:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(packing, "read_chunks", read_chunks)


def append(file: Path) -> None:
    with file.open("a") as lines:
        lines.write("1 2 +\n")


def rewrite(file: Path) -> None:
    file.write_text(file.read_text().replace("+", "*"))  # of the same size


def replace_by_another(file: Path) -> None:
    other = file.with_name("other")
    other.write_text(file.read_text().replace("+", "*"))
    status = file.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [append, rewrite, replace_by_another, Path.unlink])
@pytest.mark.parametrize("moment", ["hashed", "read"])
def test_a_file_that_changes_meanwhile_is_not_packed(
    change: Callable[[Path], None],
    moment: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After it was hashed, or after its records were cut: in both cases the hash is another's."""
    whole = [*PostfixAdapter().records(file)]

    def changing(_: PostfixAdapter, path: Path) -> Iterator[Record]:
        if moment == "hashed":
            change(path)
        yield from whole
        if moment == "read":
            change(path)

    with monkeypatch.context() as patch:
        patch.setattr(PostfixAdapter, "records", changing)
        with pytest.raises(DataError, match=r"f\.txt: the file changed while it was read\. Wait"):
            pack(SPEC, file, tmp_path / "cache", num_workers=0)
    assert not [*(tmp_path / "cache").glob("*.graphs")]
    if file.exists():
        assert pack(SPEC, file, tmp_path / "cache", num_workers=0).dag.num_graphs >= 599


def test_a_file_that_changes_before_it_is_packed_is_not_read_by_the_options_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles,kind\n" + "C,a\nCC,b\n" * 20)
    inner = SmilesAdapter.infer_options

    def changing(adapter: SmilesAdapter, paths: Sequence[Path]) -> Mapping[str, Any]:
        inferred = inner(adapter, paths)
        path.write_text("smiles,kind\n" + "C,b\nCC,a\n" * 20)
        return inferred

    monkeypatch.setattr(SmilesAdapter, "infer_options", changing)
    options = {"target_columns": ["kind"], "task": "classification", "num_workers": 0}
    data = DataModule(adapter="smiles", path=path, cache_dir=tmp_path / "cache", **options)
    with pytest.raises(DataError, match=r"m\.csv: the file changed while it was read"):
        data.prepare()


def test_packed_graphs_are_those_of_the_file(file: Path, tmp_path: Path) -> None:
    packed = pack(SPEC, file, tmp_path / "cache")
    adapter = SPEC.make()
    whole = read_records(adapter, file, adapter.records(file))
    assert difference(packed.dag, whole.dag) is None
    assert packed.dag.place(0) == (str(file), 1)
    assert packed.dag.origin[:, 2].tolist() == list(range(599))
    validate(packed.dag)


def test_the_second_time_nothing_is_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pack(SPEC, file, tmp_path / "cache")
    forbid_reading(monkeypatch)
    second = pack(SPEC, file, tmp_path / "cache", on_error="skip")
    assert difference(first.dag, second.dag) is None
    assert second.stored == first.stored
    assert [str(error) for error in second.skipped] == [str(error) for error in first.skipped]


def copies(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def test_a_copy_is_stored_and_nothing_beside_the_input(file: Path, tmp_path: Path) -> None:
    packed = pack(SPEC, file, tmp_path / "cache")
    assert copies(tmp_path / "cache") == [packed.stored]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "f.txt"]
    other = pack(AdapterSpec(NAME, {"base": 16}), file, tmp_path / "cache")
    assert copies(tmp_path / "cache") == sorted([packed.stored, other.stored])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_stored_bytes_do_not_depend_on_the_processes(file: Path, tmp_path: Path) -> None:
    one, other = (pack(SPEC, file, tmp_path / str(n), num_workers=n).stored for n in (0, 2))
    assert contents(one) == contents(other)


def test_a_changed_file_is_read_again_and_takes_the_place_of_the_old_copy(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache" / "f-of-mine.graphs").mkdir(parents=True)  # the user's own
    before = pack(SPEC, file, tmp_path / "cache")
    times = file.stat()
    file.write_text(file.read_text().replace("1", "2"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the content alone counts
    after = pack(SPEC, file, tmp_path / "cache")
    assert after.content != before.content
    assert {path.name for path in copies(tmp_path / "cache")} == {
        "f-of-mine.graphs",
        after.stored.name,
    }
    assert difference(before.dag, after.dag) is not None  # the old map still holds the old graphs
    validate(before.dag)


def test_other_code_or_libraries_read_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [pack(SPEC, file, tmp_path / "cache").stored]
    for place, value in (
        (f"{content_key.__name__}._code_hash", lambda module: "other"),
        ("postfix_adapter.PostfixAdapter.libraries", ("rdkit",)),
        (f"{content_key.__name__}._version", lambda name: "0.0"),
    ):
        monkeypatch.setattr(place, value)
        names.append(pack(SPEC, file, tmp_path / "cache").stored)
    assert len({*names}) == 4


@pytest.mark.parametrize("name", ["manifest.json", "0.npy", "7.npy"])
@pytest.mark.parametrize("bad", [b"", b"no numbers at all", None])
def test_a_damaged_copy_is_made_anew(
    name: str, bad: bytes | None, file: Path, tmp_path: Path
) -> None:
    packed = pack(SPEC, file, tmp_path / "cache")
    good = contents(packed.stored)
    path = packed.stored / name
    path.unlink()  # a new file: the old one is mapped
    path.write_bytes(good[name][:-1] if bad is None else bad)
    assert difference(pack(SPEC, file, tmp_path / "cache").dag, packed.dag) is None
    assert contents(packed.stored) == good


def test_a_bad_record_is_raised_and_nothing_stored(file: Path, tmp_path: Path) -> None:
    spoil(file)
    with pytest.raises(RecordError, match=r"f\.txt:11: 2 values are left over\."):
        pack(SPEC, file, tmp_path / "cache")
    assert copies(tmp_path / "cache") == []


def test_skipped_records_are_kept_with_their_reasons(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(file)
    pack(SPEC, file, tmp_path / "cache", on_error="skip")
    forbid_reading(monkeypatch)
    packed = pack(SPEC, file, tmp_path / "cache", on_error="skip")
    assert [(type(e), e.path, e.line, e.fault) for e in packed.skipped] == [
        (RecordError, str(file), 11, "2 values are left over"),
        (LeftOut, str(file), 301, "the value is not measured"),
        (RecordError, str(file), 591, "'x' is no number"),
    ]
    with pytest.raises(RecordError, match=r"f\.txt:11: 2 values are left over"):
        pack(SPEC, file, tmp_path / "cache", on_error="raise")


def test_messages_name_the_input_as_it_was_given(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(SPEC, file, tmp_path / "cache")
    forbid_reading(monkeypatch)
    monkeypatch.chdir(tmp_path)
    packed = pack(SPEC, Path("f.txt"), tmp_path / "cache")
    assert packed.dag.place(3) == ("f.txt", 4)
    assert packed.skipped[0].path == "f.txt"


def test_nothing_usable_is_refused(tmp_path: Path) -> None:
    bad = pack(
        SPEC, write_expressions(tmp_path / "b.txt", ["x", "1 +"]), tmp_path / "c", on_error="skip"
    )
    assert bad.dag.num_graphs == 0
    with pytest.raises(
        DataError, match=r"b\.txt: no usable record is left; 2 records were left out\. The"
    ):
        refuse_empty(bad.path, [bad])
    good = pack(SPEC, write_expressions(tmp_path / "g.txt", ["1"]), tmp_path / "c")
    refuse_empty(bad.path, [bad, good])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file\. Correct the path"):
        pack(SPEC, tmp_path / "nowhere.txt", tmp_path / "cache")


def test_a_cache_that_cannot_be_written(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(DataError, match=r"taken: nothing can be stored there .*data\.cache_dir"):
        pack(SPEC, file, tmp_path / "taken")


def test_the_files_of_a_folder_count(tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for side in "ab":
        (folder / f"{side}.toks").write_text("a b\n")
        (folder / f"{side}.parents").write_text("2 0\n")
        (folder / f"{side}.rels").write_text("det root\n")
    first = pack(AdapterSpec("pairs"), folder, tmp_path / "cache")
    (folder / "b.rels").write_text("amod root\n")
    second = pack(AdapterSpec("pairs"), folder, tmp_path / "cache")
    assert first.content != second.content
    assert second.dag.strings("inputs", "deprel") == ["det", "amod"]


def test_progress_is_shown_on_standard_error(
    file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.0)
    pack(SPEC, file, tmp_path / "cache")
    out, shown = capfd.readouterr()
    assert out == ""
    assert re.search(r"packing f.txt: \d+ records, [\d,]+ a second\n", shown)
