"""`graphfold draw`: a picture for every record, and a page with all of them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from training.tiny_runs import run

import graphfold
from graphfold.errors import RecordError

TREES = "(_ (_ the) (_ film))\n(_ (_ the\n(_ <b>&)\n"


def test_a_page_shows_every_record_in_order(trees, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("new.txt").write_text(TREES)
    assert run("draw", trees, "new.txt") == 0
    out, err = capsys.readouterr()
    assert out == "new_drawings/index.html\n"
    assert err == "2 drawn, 1 could not be read (see their reason)\n"
    folder = Path("new_drawings")
    assert sorted(p.name for p in folder.iterdir()) == ["00001.svg", "00003.svg", "index.html"]
    page = (folder / "index.html").read_text()
    assert re.findall(r'<figure.*?id="(\d+)"', page) == ["00001", "00002", "00003"]
    assert "line 2 <i>bracket opened at column 4 is never closed" in page
    assert re.search(r"<bdi>the film</bdi>\nlabel: [0-4] \(0\.\d\d\)</figcaption><svg", page)
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page
    for name in ("00001", "00003"):
        drawing = (folder / f"{name}.svg").read_text()
        ElementTree.fromstring(drawing)
        assert drawing.strip() in page


def test_pictures_go_where_they_are_told_in_batches_of_any_size(trees, tmp_path, capsys):
    (tmp_path / "new.txt").write_text("(_ (_ a) (_ film))\n" * 3)
    for name in ("1", "100"):
        words = ("--output", tmp_path / name, "--batch-size", name, "--target", "label")
        assert run("draw", trees, tmp_path / "new.txt", *words) == 0
    names = [f"{number:05}.svg" for number in (1, 2, 3)]
    drawn = [[(tmp_path / size / name).read_text() for name in names] for size in ("1", "100")]
    assert drawn[0] == drawn[1]
    assert run("draw", trees, tmp_path / "new.txt", "--batch-size", "0") == 2
    assert "'0' is not a whole number from 1 on" in capsys.readouterr().err


def test_what_cannot_be_drawn_is_wrong_use(trees, tmp_path, capsys):
    path = tmp_path / "new.txt"
    path.write_text("(_ (_ the\n")
    assert run("draw", trees, path, "--output", tmp_path / "out") == 2
    assert "not one record could be read" in capsys.readouterr().err
    assert run("draw", trees, path, "--output", path) == 2
    assert "is a file. Name a folder" in capsys.readouterr().err
    assert run("draw", trees, path, "--output", tmp_path / "no" / "out") == 2
    assert "does not exist" in capsys.readouterr().err
    assert run("draw", trees, tmp_path / "none.txt") == 2
    path.write_text("(_ (_ the))\n")
    assert run("draw", trees, path, "--output", tmp_path / "out", "--target", "labl") == 2
    assert "no target 'labl'. Did you mean 'label'? There are: label." in capsys.readouterr().err
    assert not Path("none_drawings").exists()


def test_a_notebook_shows_what_a_model_draws(trees):
    model = graphfold.load(trees)
    drawing = model.draw("(_ (_ the) (_ film))")
    assert drawing._repr_svg_() == drawing.svg
    assert drawing.text == "the film"
    with pytest.raises(RecordError, match="never closed"):
        model.draw("(_ (_ the")
