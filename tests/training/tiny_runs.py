"""Tiny corpora in the formats of the real ones, and the command line in this process."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from graphfold.cli import main
from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.datasets.readers.pairs import ENTAILMENT

WORDS = ("the", "a", "film", "is", "not", "very", "good", "bad", "dull", "bright")
TAGS = {"the": "DET", "a": "DET", "film": "NOUN", "is": "AUX", "not": "PART", "very": "ADV"}
MOLECULES = ("C", "CC", "CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "CCCl", "c1ccncc1", "CCOC")


#: The model of molecules that trains soonest.
QUICK = ["model=gcn", "model.hidden_size=4", "model.run=eager", "trainer.max_epochs=1"]


def run(*words: str | Path, draws: bool = False) -> int:
    """`graphfold` with these arguments, in this process; returns its exit code.

    Args:
        *words: the command line.
        draws: whether reports have their pictures, which take longer than a tiny run's training.
    """
    with nullcontext() if draws else undrawn():
        return main([str(word) for word in words])


@contextmanager
def undrawn() -> Iterator[None]:
    """Reports without their pictures, and rehearsals without the picture of predictions."""
    with (
        mock.patch("graphfold.reports.report.draw_curves", return_value=""),
        mock.patch("graphfold.reports.report.draw_predictions", return_value=""),
        mock.patch("graphfold.reports.report.draw_worst", return_value=None),
        mock.patch("graphfold.inference.evaluation.is_first", return_value=False),
    ):
        yield


def train(folder: Path, *overrides: str, draws: bool = False) -> Path:
    """Trains into `folder`; fails the test unless that succeeds. `draws` is as for `run`."""
    settings = [f"data.cache_dir={folder.parent}/cache", "logger=none", f"hydra.run.dir={folder}"]
    assert run("train", *overrides, *settings, draws=draws) == 0
    return folder


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def listops(*more: str) -> list[str]:
    """Overrides for a tiny run on generated list operations.

    Its cells run as they are, since to compile them takes longer than to train; `model.run=auto`
    has them compiled.
    """
    return [
        "data.train_size=40",
        "data.val_size=12",
        "data.test_size=12",
        "data.max_length=20",
        "+data.pool=100",  # of expressions to choose from; 100,000 take seconds to make
        "data.batch_size=8",
        "model.hidden_size=8",
        "model.encoder.size=8",
        "model.run=eager",
        "trainer.max_epochs=2",
        *more,
    ]


def write_corpora(root: Path) -> Path:
    """A few records of every corpus that an experiment reads, under `root`."""
    rng = random.Random(0)
    for part in ("train", "dev", "test"):
        _write(root / "sst" / f"{part}.txt", [bracket_tree(rng) for _ in range(12)])
        _write(root / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu", [conllu(rng)] * 6)
        _write_pairs(root / "sick" / "parsed" / part, rng)
        judgments = [f"{i}\t{rng.choice(ENTAILMENT)}" for i in range(8)]
        head = "pair_ID\tentailment_judgment"
        _write(root / "sick" / f"SICK_{part}.txt", [head, *judgments])
    trees = ["( (S (NP-SBJ (PRP It)) (VP (VBZ is) (ADJP (JJ good) (-NONE- *T*))) (. .)) )"] * 12
    _write(root / "ptb_sample" / "wsj_0001-0199.mrg", trees)
    expressions = ["3\t3", "4\t( ( ( [MAX 2 ) 4 ) ] )", "1\t( ( ( [SM 8 ) 3 ) ] )"]
    _write(root / "listops" / "test_d20s.tsv.gz", expressions)
    rows = [f"name,{rng.gauss(0, 1):.3f},{smiles} " for smiles in MOLECULES * 3]
    header = "Compound ID,measured log solubility in mols per litre,smiles"
    _write(root / "esol" / "delaney-processed.csv", [header, *rows])
    rows = [f"{smiles},{rng.gauss(0, 1):.2f}" for smiles in MOLECULES * 3]
    _write(root / "lipophilicity" / "Lipophilicity.csv", ["smiles,exp", *rows])
    rows = [f"name,{smiles},{rng.gauss(-4, 3):.2f},0" for smiles in MOLECULES * 3]
    _write(root / "freesolv" / "SAMPL.csv", ["iupac,smiles,expt,calc", *rows])
    for part in ("valid", "test"):
        _write(
            root / "zinc250k_subset" / f"{part}.csv",
            ["smiles,logP", *(f"{s},0" for s in MOLECULES)],
        )
    rows = [f"{i},x,{i % 2},{smiles}" for i, smiles in enumerate(MOLECULES * 3)]
    active = [f"{smiles},{row % 2}" for row, smiles in enumerate(MOLECULES * 3)]
    _write(root / "hiv" / "HIV.csv.gz", ["smiles,HIV_active", *active])
    _write(root / "bbbp" / "BBBP.csv", ["num,name,p_np,SMILES", *rows, "99,bad,1,C1CC"])
    rows = [
        f"{smiles},{rng.gauss(7, 1):.2f},{'test' if i % 5 == 2 else 'train'}"
        for i, smiles in enumerate(MOLECULES * 3)
    ]
    _write(root / "tox21" / "tox21.csv", tox21_lines())
    header = "smiles,y [pEC50/pKi],split"
    _write(root / "moleculeace" / "CHEMBL204_Ki.csv", [header, *rows])
    return root


def tox21_lines() -> list[str]:
    """Molecules in twelve assays, some of them not measured."""
    names = find_corpus("tox21").adapter.options["target_columns"]
    lines = [",".join([*names, "mol_id", "smiles"])]
    for row, smiles in enumerate(MOLECULES * 3):
        cells = ["" if (row + i) % 5 == 0 else str((row + i) % 2) for i in range(len(names))]
        lines.append(",".join([*cells, f"TOX{row}", smiles]))
    return lines


def bracket_tree(rng: random.Random, num_words: int = 5) -> str:
    """A binary tree with a label 0 .. 4 on every node."""
    parts = [f"({rng.randrange(5)} {rng.choice(WORDS)})" for _ in range(num_words)]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [f"({rng.randrange(5)} {parts[at]} {parts[at + 1]})"]
    return parts[0]


def conllu(rng: random.Random, num_words: int = 4) -> str:
    """A sentence with its first word as the root, and the blank line after it."""
    words = [rng.choice(WORDS) for _ in range(num_words)]
    lines = [f"# text = {' '.join(words)}"]
    for number, word in enumerate(words, start=1):
        head = rng.randrange(1, number) if number > 1 else 0
        relation = "dep" if head else "root"
        tag = TAGS.get(word, "ADJ")
        lines.append(f"{number}\t{word}\t{word}\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
    return "\n".join([*lines, ""])


def write_molecules(path: Path, num_rows: int = 30, bad_rows: int = 0) -> Path:
    """A table with two measured values and a class per molecule, some of them missing."""
    rng = random.Random(1)
    lines = ["id,smiles,a b,c,active"]
    for row in range(num_rows):
        smiles = "C1CC" if row < bad_rows else MOLECULES[row % len(MOLECULES)]
        second = "" if row % 7 == 3 else f"{rng.gauss(5, 2):.3f}"
        lines.append(f'"x,{row}",{smiles},{rng.gauss(0, 1):.3f},{second},{row % 2}')
    _write(path, lines)
    return path


def _write_pairs(folder: Path, rng: random.Random, count: int = 8) -> None:
    for side in "ab":
        words = [[rng.choice(WORDS) for _ in range(3)] for _ in range(count)]
        _write(folder / f"{side}.toks", [" ".join(sentence) for sentence in words])
        _write(folder / f"{side}.parents", ["0 1 1"] * count)
        _write(folder / f"{side}.rels", ["root dep dep"] * count)
    _write(folder / "id.txt", [str(number) for number in range(count)])
    _write(folder / "sim.txt", [f"{rng.uniform(1, 5):.2f}" for _ in range(count)])


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
