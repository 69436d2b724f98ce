"""A file is read once by `graphfold predict`, `fingerprint` and `draw`."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.tiny_runs import run, train, write_corpora

from graphfold.datasets.files import text_files

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]

RECORDS = 40


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("passes") / "corpora")


@pytest.fixture
def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the lines that were read from a file in this process, one by one."""
    numbers: list[int] = []
    decode = text_files._decode

    def counted(number: int, raw: bytes) -> text_files.Line:
        numbers.append(number)
        return decode(number, raw)

    monkeypatch.setattr(text_files, "_decode", counted)
    return numbers


#: Lines beside those of a pass: the first record tells the separator and the header of a table.
FIRST_LINES = 4


def check(lines_read: list[int], path: Path, *words: str | Path) -> None:
    num_lines = len(path.read_text().splitlines())
    lines_read.clear()
    assert run(*words) == 0
    assert num_lines <= len(lines_read) <= num_lines + FIRST_LINES
    assert lines_read.count(num_lines) == 1


def test_molecules(corpora: Path, tmp_path: Path, lines_read: list[int]) -> None:
    own = ["experiment=esol_gcn", f"data.root={corpora}", *SMALL, "data.num_workers=2"]
    trained = train(tmp_path / "run", *own)
    path = tmp_path / "new.csv"
    rows = [f'"C{"C" * (number % 7)}O",{number}' for number in range(RECORDS)]
    path.write_text("\n".join(["smiles,number", *rows, ""]))
    out = tmp_path / "out.csv"
    for words in ([], ["--explain"], ["--batch-size", "7"]):
        check(lines_read, path, "predict", trained, path, "--output", out, *words)
        numbers = [line.split(",")[1] for line in out.read_text().splitlines()]
        assert numbers == ["number", *map(str, range(RECORDS))]
        out.unlink()
    check(lines_read, path, "fingerprint", trained, path, "--output", out, "--batch-size", "7")
    check(lines_read, path, "draw", trained, path, "--output", tmp_path / "drawn")


def test_trees_that_are_given_back(corpora: Path, tmp_path: Path, lines_read: list[int]) -> None:
    own = ["experiment=ud_upos", f"data.root={corpora}", *SMALL, "data.num_workers=2"]
    trained = train(tmp_path / "run", *own)
    path = tmp_path / "new.conllu"
    sentence = "# {}\n1\tle\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tfilm\t_\t_\t_\t_\t0\troot\t_\t_\n"
    path.write_text("\n".join(sentence.format(number) for number in range(RECORDS)))
    out = tmp_path / "out.conllu"
    for words in (["--format", "conllu"], [], ["--format", "conllu", "--batch-size", "7"]):
        check(lines_read, path, "predict", trained, path, "--output", out, *words)
        if words:
            told = [line for line in out.read_text().splitlines() if line.startswith("#")]
            assert told == [f"# {number}" for number in range(RECORDS)]
        out.unlink()
