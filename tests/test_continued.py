"""Work that is broken off and gone on with: the output is that of unbroken work."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfold import continued as module
from graphfold.continued import continued
from graphfold.errors import DataError


def run(output: Path, until: int, work: str = "a", count: int = 10, fault: str = "Ctrl-C") -> int:
    """Writes numbers in batches of two, up to some point; returns where it began."""
    with continued(output, {"work": work}) as part:
        first = part.records
        for number in range(first, count):
            if number == until:
                if fault == "bad input":
                    raise DataError("it is bad")
                raise KeyboardInterrupt
            part.file.write(f"{work}{number}\n".encode() * (number + 1))
            part.facts["last"] = number
            if number % 2:
                part.done(number + 1)
    return first


def whole(work: str = "a", count: int = 10) -> str:
    return "".join(f"{work}{number}\n" * (number + 1) for number in range(count))


@given(stops=st.lists(st.integers(0, 9), max_size=6), period=st.sampled_from([0.0, 1e9]))
def test_wherever_it_stops_the_output_is_that_of_unbroken_work(
    stops: list[int], period: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = tmp_path_factory.mktemp("work") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PERIOD", period)
        done = 0
        for stop in sorted(stops):
            with pytest.raises(KeyboardInterrupt):
                run(output, stop)
            done = max(done, stop - stop % 2)
            assert not output.exists()
        assert run(output, 99) == done
    assert output.read_text() == whole()
    assert [path.name for path in output.parent.iterdir()] == ["out"]


def test_another_work_begins_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    output.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        run(output, 5)
    assert output.read_text() == "old"
    assert "keeps what is done; the same command goes on from it" in capsys.readouterr().err
    assert run(output, 99, work="b", count=3) == 0
    assert "belongs to another input, model or command" in capsys.readouterr().err
    assert output.read_text() == whole("b", 3)


@pytest.mark.parametrize("note", ["", "{", "[]", '{"work": 1}', '{"bytes": -1}', "null"])
def test_a_damaged_note_begins_anew(note: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(output, 5)
    (tmp_path / "out.part.json").write_text(note)
    assert run(output, 99) == 0
    assert output.read_text() == whole()


def test_a_part_that_lost_its_end_begins_anew(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(output, 5)
    (tmp_path / "out.part").write_text("a0\n")
    assert run(output, 99) == 0
    assert output.read_text() == whole()


def test_after_a_fault_of_the_input_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        run(tmp_path / "out", 5, fault="bad input")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    run(link, 99)
    assert link.is_symlink()
    assert target.read_text() == whole()


def test_two_processes_do_not_write_to_one_output(tmp_path: Path) -> None:
    output = tmp_path / "out"
    code = (
        "import sys, pathlib; from graphfold.continued import continued\n"
        "with continued(pathlib.Path(sys.argv[1]), {'work': 'other'}): pass"
    )
    command = [sys.executable, "-c", code, str(output)]
    with continued(output, {"work": "a"}) as part:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "ConfigError" in done.stderr
        assert "out.part: another process is writing it" in done.stderr
        part.file.write(b"whole")
    assert output.read_bytes() == b"whole"
    assert subprocess.run(command, check=True).returncode == 0
    assert output.read_bytes() == b""


def test_what_stopped_before_it_had_begun_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", 0)
    assert capsys.readouterr().err == ""
    for work, stop in (("a", 5), ("b", 0)):  # the second begins anew
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", stop, work)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mine", ["out.part", "out.part.json"])
def test_a_file_of_the_user_s_is_not_used_up(mine: str, tmp_path: Path) -> None:
    (tmp_path / mine).write_text("[1]")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", 5)
    assert (tmp_path / mine).read_text() == "[1]"
    assert run(tmp_path / "out", 99) == 4
    assert (tmp_path / "out").read_text() == whole()
    assert {path.name for path in tmp_path.iterdir()} == {"out", mine}
    assert (tmp_path / mine).read_text() == "[1]"


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_output_keeps_the_permissions_of_the_file_before(mode: int, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old")
    output.chmod(mode)
    with continued(output, {}) as part:
        assert stat.S_IMODE(part.path.stat().st_mode) == mode
    assert stat.S_IMODE(output.stat().st_mode) == mode
