"""Pairs of dependency trees, as in the parsed folders of SICK."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema
from graphfold.dag.builder import NO_SPAN
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.table_columns import MISSING_CELLS
from graphfold.datasets.files.text_files import at_least_one, read_lines, scan_lines
from graphfold.datasets.readers.conllu_sentence import align, find_dependents, parse_head
from graphfold.errors import DataError, RecordError

#: The judgments of SICK; the code of one is its position here.
ENTAILMENT = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")

#: The files that a folder must hold: words, heads and relations of both sentences.
REQUIRED = tuple(f"{side}.{kind}" for side in "ab" for kind in ("toks", "parents", "rels"))

#: The files that it may hold: the sentences as text, the scores, the numbers of the pairs.
OPTIONAL = ("a.txt", "b.txt", "sim.txt", "id.txt")

_SCALE = (1.0, 5.0)


@dataclass(frozen=True)
class PairLines:
    """Line i of every file of a folder, with SICK's judgment of the pair."""

    folder: Path
    texts: Mapping[str, str]  # file name -> its line
    judgment: tuple[str, Path, int] | None  # with its file and line

    def fault(self, name: str, line: int, fault: str) -> RecordError:
        """The error about a line of the file `name`."""
        remedy = f"Correct {name}, or set data.on_error=skip."
        return RecordError(fault, remedy, path=self.folder / name, line=line)


class PairsAdapter(Adapter):
    """Reads folders of parsed sentence pairs; line i of every file belongs to pair i.

    Format: the folders that Tai et al. (2015), https://arxiv.org/abs/1503.00075, made of SICK
    (Marelli et al. 2014, https://aclanthology.org/L14-1314): for both sentences `a.toks` (words
    between blanks), `a.parents` (the head of each word; 1 is the first word, 0 the root) and
    `a.rels` (their relations); `b.*` likewise. These may be absent: the sentences `a.txt` and
    `b.txt` (then the words are joined), the scores `sim.txt` and the numbers `id.txt`. The
    judgment of a pair is looked up by its number in the files `SICK_*.txt` two folders above
    (`sick/` for `sick/parsed/train`), if there are any.

    Schema: the type `word` with the string `form`; its inputs are its dependents in word order,
    with the string `deprel`. Graph targets: `relatedness` (1 to 5) and `entailment` (a position in
    `ENTAILMENT`), either may be missing. Graph features: `sentence_a`, `sentence_b`, `pair_id`.
    Nodes are the words of the first sentence, then those of the second; the outputs are the two
    roots. Spans are characters of the word's sentence.

    Args:
        across: add the relation `across`, from every word of each sentence to all of the other.
    """

    words = ("word", "form")

    def __init__(self, across: bool = False) -> None:
        self.across = across
        self.schema = Schema(
            types=(NodeType("word", features=(Column("form", "string"),)),),
            inputs=EdgeType("inputs", features=(Column("deprel", "string"),)),
            relations=(EdgeType("across"),) if across else (),
            graph_features=(
                Column("sentence_a", "string"),
                Column("sentence_b", "string"),
                Column("pair_id", "string"),
            ),
            graph_targets=(
                Column("relatedness", "float32", unit="score 1-5"),
                Column("entailment", "int64", names=ENTAILMENT),
            ),
        )

    def sources(self, path: Path) -> list[Path]:
        """The files of the folder that are read, and those with the judgments."""
        names = [name for name in (*REQUIRED, *OPTIONAL) if (path / name).is_file()]
        return [path / name for name in names] + _judgment_files(path)

    def records(self, path: Path) -> Iterator[Record]:
        """One record per pair, `content` being its `PairLines`; see `Adapter.records`."""
        yield from at_least_one(_pairs(path), path, "pairs")

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one pair; see `Adapter.parse`."""
        pair: PairLines = record.content
        first = _write_tree(pair, "a", record.line, graph)
        middle = graph.num_nodes
        graph.output(first, _write_tree(pair, "b", record.line, graph))
        if self.across:
            edges = list(product(range(middle), range(middle, graph.num_nodes)))
            one, other = [a for a, _ in edges], [b for _, b in edges]
            graph.edges("across", one + other, other + one)
        graph.finish(
            line=record.line,
            sentence_a=_sentence(pair, "a"),
            sentence_b=_sentence(pair, "b"),
            pair_id=pair.texts.get("id.txt"),
            relatedness=_score(pair, record.line),
            entailment=_judgment(pair),
        )


def _pairs(folder: Path) -> Iterator[Record]:
    if not folder.is_dir():
        fault = "is a file, not a folder" if folder.exists() else "no such folder"
        raise DataError.in_file(folder, f"{fault}. Give a folder with a.toks, a.parents and so on.")
    files = {name: folder / name for name in (*REQUIRED, *OPTIONAL)}
    files = {name: file for name, file in files.items() if name in REQUIRED or file.exists()}
    count = _common_length(folder, files)
    judgments = _read_judgments(folder) if "id.txt" in files else {}
    lines = zip(*(scan_lines(file) for file in files.values()), strict=False)
    for row in islice(lines, count):
        texts = {name: line.text.strip(" \t") for name, line in zip(files, row, strict=True)}
        judgment = judgments.get(texts.get("id.txt", ""))
        pair = PairLines(folder, texts, judgment)
        pairs = zip(files.values(), row, strict=True)
        faults = (ln.fault.at(file, ln.number) for file, ln in pairs if ln.fault is not None)
        yield Record(row[0].number, pair, next(faults, None))


def _common_length(folder: Path, files: Mapping[str, Path]) -> int:
    """The number of lines of every file, blank lines at its end not counted."""
    lengths = {
        name: max((line.number for line in scan_lines(file) if line.text.strip(" \t")), default=0)
        for name, file in files.items()
    }
    first, *others = lengths
    for name in others:
        if lengths[name] != lengths[first]:
            raise DataError.in_file(
                folder,
                f"{first} has {lengths[first]} lines, but {name} has {lengths[name]}. "
                "Line i of every file must belong to pair i.",
            )
    return lengths[first]


def _judgment_files(folder: Path) -> list[Path]:
    return sorted(folder.resolve().parent.parent.glob("SICK_*.txt"))


def _read_judgments(folder: Path) -> dict[str, tuple[str, Path, int]]:
    """Pair number -> judgment, from every table that has such a column."""
    judgments = {}
    for file in _judgment_files(folder):
        rows = ((number, line.split("\t")) for number, line in read_lines(file))
        header = next(rows, (0, []))[1]
        if "pair_ID" not in header or "entailment_judgment" not in header:
            continue
        key, value = header.index("pair_ID"), header.index("entailment_judgment")
        for number, cells in rows:
            if len(cells) == len(header):
                judgments[cells[key]] = (cells[value], file, number)
    return judgments


def _write_tree(pair: PairLines, side: str, line: int, graph: GraphBuilder) -> int:
    """Adds the words of one sentence; returns its root."""
    words = _words(pair, f"{side}.toks")
    if not words:
        raise pair.fault(f"{side}.toks", line, "the sentence has no words")
    for kind in ("parents", "rels"):
        count = len(_words(pair, f"{side}.{kind}"))
        if count != len(words):
            what = f"the sentence has {len(words)} words in {side}.toks, but {count} {kind}"
            raise pair.fault(f"{side}.{kind}", line, what)

    def fault(_: int, what: str) -> RecordError:
        return pair.fault(f"{side}.parents", line, what)

    parents = enumerate(_words(pair, f"{side}.parents"), 1)
    heads = [parse_head(text, token, len(words), fault) for token, text in parents]
    root, dependents = find_dependents(heads, fault)
    spans = align(words, _sentence(pair, side)) or [NO_SPAN] * len(words)
    nodes = graph.nodes("word", len(words), spans, form=words)
    relations = _words(pair, f"{side}.rels")
    for head, inputs in enumerate(dependents):
        if inputs:
            deprel = [relations[word] for word in inputs]
            graph.inputs(nodes[head], [nodes[word] for word in inputs], deprel=deprel)
    return nodes[root]


def _words(pair: PairLines, name: str) -> list[str]:
    """The entries of a line; only ASCII blanks part them."""
    return [word for word in pair.texts[name].replace("\t", " ").split(" ") if word]


def _sentence(pair: PairLines, side: str) -> str:
    return pair.texts.get(f"{side}.txt") or " ".join(_words(pair, f"{side}.toks"))


def _score(pair: PairLines, line: int) -> float | None:
    text = pair.texts.get("sim.txt", "")
    if text in MISSING_CELLS:
        return None
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not _SCALE[0] <= score <= _SCALE[1]:
        raise pair.fault("sim.txt", line, f"the score '{text}' is not a number from 1 to 5")
    return score


def _judgment(pair: PairLines) -> int | None:
    if pair.judgment is None:
        return None
    judgment, file, line = pair.judgment
    if judgment not in ENTAILMENT:
        raise RecordError(
            f"the judgment '{judgment}' is none of {', '.join(ENTAILMENT)}",
            f"Correct {file.name}, or set data.on_error=skip.",
            path=file,
            line=line,
        )
    return ENTAILMENT.index(judgment)
