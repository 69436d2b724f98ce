"""Options of `graphfold doctor`."""

from __future__ import annotations

from effects.table import Rows

from graphfold.cli import main

ROWS = row = Rows()


@row.changes("doctor --clear-cache", "the cache is emptied, and nothing else is shown")
def _(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored = tmp_path / "graphfold" / "a.arrow"
    stored.parent.mkdir()
    for words, is_left in (([], True), (["--clear-cache"], False)):
        stored.write_bytes(b"0" * 1_000_000)
        assert main(["doctor", *words]) == 0
        assert stored.exists() == is_left
        assert ("MB freed" in capsys.readouterr().out) != is_left


@row.nothing("doctor --debug", "there is no error to trace")
def _(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = []
    for words in ([], ["--debug"]):
        assert main(["doctor", *words]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
