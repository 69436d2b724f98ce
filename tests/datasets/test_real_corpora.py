"""Numbers of records and nodes of the real corpora, against their descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfold.datasets.inspection.data_card import check_data

#: Usable records by part, rejected records, nodes (None where the source does not say).
#: From the descriptions of the corpora: trees, sentences, pairs or rows, less what RDKit rejects.
SMALL = {
    "ud_chinese_gsdsimp": ({"val": 500, "test": 500}, 0, 24675),
    "esol": ({"all": 1128}, 0, None),
    "freesolv": ({"all": 642}, 0, None),
    "chembl": ({"all": 1017}, 0, None),
}
LARGE = {
    "sst": ({"train": 8544, "val": 1101, "test": 2210}, 0, 318582 + 41447 + 82600),
    "ptb_sample": ({"all": 3914}, 0, None),
    "sick": ({"train": 4500, "val": 500, "test": 4927}, 0, None),
    "listops": ({"test": 20000}, 0, None),
    "ud_english_ewt": ({"train": 12544, "val": 2001, "test": 2077}, 0, 204577 + 25147 + 25094),
    "ud_french_sequoia": ({"train": 2231, "val": 412, "test": 456}, 0, 50502 + 9999 + 10044),
    "lipophilicity": ({"all": 4200}, 0, None),
    "bbbp": ({"all": 2039}, 11, None),
    "tox21": ({"all": 7823}, 8, None),
    "hiv": ({"all": 41120}, 7, None),
    "qm7": ({"all": 6830}, 0, None),
    "qm8": ({"all": 21786}, 0, None),
    "qm9": ({"all": 4 * 133885}, 0, None),
    "zinc250k_subset": ({"val": 19648, "test": 19719}, 0, None),
}


def check_counts(
    corpus: str, counts: tuple[dict[str, int], int, int | None], root: Path, cache: Path
) -> None:
    settings = {"root": str(root), "cache_dir": str(cache), "on_error": "skip"}
    card = check_data(corpus, settings=settings)
    splits, skipped, nodes = counts
    assert card["splits"] == splits
    assert card["records"] == sum(splits.values())
    assert card["skipped"] == len(card["reasons"]) == skipped
    assert nodes is None or card["nodes"] == nodes
    assert all(file["as_published"] in (True, None) for file in card["files"])


@pytest.mark.parametrize("corpus", SMALL)
def test_small_corpora(corpus, data_root, tmp_path):
    check_counts(corpus, SMALL[corpus], data_root, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", LARGE)
def test_large_corpora(corpus, data_root, tmp_path):
    check_counts(corpus, LARGE[corpus], data_root, tmp_path)
