"""Generated expressions to train on, beside the published ones to be scored by."""

from __future__ import annotations

import gzip

from graphfold.datasets.corpora.corpus_makers import make_published_listops


def test_the_published_expressions_are_in_no_other_part(tmp_path):
    published = tmp_path / "listops" / "test_d20s.tsv.gz"
    published.parent.mkdir()
    # Drawn often: all digits.
    published.write_bytes(gzip.compress("".join(f"{d}\t{d}\n" for d in range(10)).encode()))
    made = make_published_listops(tmp_path / "cache", tmp_path, 60, 20, pool=100)
    parts = {part: path for path, part in made}
    assert [*parts] == ["train", "val", "test"]
    assert parts["test"] == published
    lines = {part: parts[part].read_text().splitlines() for part in ("train", "val")}
    assert [len(found) for found in lines.values()] == [60, 20]
    expressions = [line.split("\t")[1] for found in lines.values() for line in found]
    assert len({*expressions}) == 80
    assert not {*expressions} & {*"0123456789"}
    assert make_published_listops(tmp_path / "cache", tmp_path, 60, 20, pool=100) == made
