"""CoNLL-U: the dependency trees of Universal Dependencies.

Predictions are written back as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.dag.builder import NO_SPAN
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.record_limit import RecordLimit
from graphfold.datasets.files.text_files import (
    Line,
    at_least_one,
    scan_raw_lines,
    text_lines,
)
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.datasets.readers.conllu_sentence import (
    COLUMNS,
    Sentence,
    Span,
    Token,
    align,
    find_dependents,
    parse_head,
    read_sentence,
)
from graphfold.errors import ConfigError, RecordError, count_of, did_you_mean
from graphfold.options import refuse_unread

#: The columns that may be predicted, and those that may become features of a word.
TARGETS = ("form", "lemma", "upos", "xpos", "feats", "deprel")
FEATURES = TARGETS[:-1]

#: Target of words -> the column, from 0, that holds it.
COLUMN_OF: Mapping[str, int] = {name: COLUMNS.index(name) for name in TARGETS}

#: The comment before a sentence without a prediction.
ERROR = "# graphfold_error = "

_BOM = "\ufeff"


def with_columns(text: str, values: Mapping[str, Sequence[Any]]) -> str:
    """Replaces cells of the words of a sentence; other lines stay.

    Args:
        text: the lines of the sentence.
        values: target in `COLUMN_OF` -> the cell of each word, in order; None for no change.
    """
    lines, number = text.split("\n"), 0
    for place, line in enumerate(lines):
        cells = line.split("\t")
        if not cells[0].lstrip(_BOM).isdecimal():
            continue
        for target, column in values.items():
            if column[number] is not None:
                cells[COLUMN_OF[target]] = str(column[number])
        lines[place] = "\t".join(cells)
        number += 1
    return "\n".join(lines)


def with_fault(text: str, reason: str) -> str:
    """Adds a comment before a sentence: the reason why it has no prediction."""
    mark = _BOM if text.startswith(_BOM) else ""
    lines = text.removeprefix(mark).split("\n")
    place = next((n for n, line in enumerate(lines) if line.strip(" \t\r")), 0)
    end = "\r" if lines[place].endswith("\r") else ""
    lines.insert(place, ERROR + " ".join(reason.split()) + end)
    return mark + "\n".join(lines)


#: The universal part-of-speech tags; the code of a tag is its position here.
UPOS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)

#: The column FEATS of a word without features, which is a class like any other.
NO_FEATURES = "_"

#: The kinds of trees, see `ConlluAdapter`.
TREES = ("auto", "heads", "chain")

#: The last class, of all labels without a class.
OTHER_LABEL = "(other)"

#: The distance between dependent and head from which on `position` is the same.
_FAR = 4


@dataclass(eq=False)
class ConlluAdapter(Adapter):
    """Reads dependency trees in CoNLL-U; one record per sentence.

    Format: https://universaldependencies.org/format.html. The tree is that of HEAD: the inputs of
    a word are its dependents in word order, projective or not, so a root is computed last.
    Multiword tokens (1-2) are no nodes; they give their words a place in the text. A sentence
    without a root, with two roots, a cycle or a head out of range is a fault. Sentences without
    heads are chains: the input of a word is the word before it, so a Tree-LSTM is an LSTM.

    Schema: the type `word` with the strings of `features`; its inputs have the string `deprel`,
    unless that is the target or the sentences are chains. The relation `next` leads from each word
    to the next one. Node target: that of `target`, missing where the file has `_`, but for
    feats, where `_` is the class of words without features; a UPOS tag has
    its position in `UPOS` as code, any other label its position in `labels`, and one that is not
    there the last code.
    Graph feature: `text`, from the comment `# text`. Nodes and outputs are the words in order.
    Spans are characters of the text, unknown where text and forms do not agree.

    With `relation_column="deps"` there is also the type `empty`, for empty nodes (8.1), after the
    words, and the relation `enhanced`, from dependent to head as the inputs are, possibly cyclic,
    with the string `deprel`. The inputs stay those of the tree.

    Args:
        features: the columns that a word has as features, out of form, lemma, upos, xpos and feats.
            A tagger should leave the last four out: these annotations predict each other.
        relation_column: "deprel" for the tree alone, "deps" for the enhanced graph as well.
        subtypes: keep `nsubj:pass`; otherwise it is read as `nsubj`.
        target: the column that is predicted, out of form, lemma, upos, xpos, feats and deprel.
        labels: the classes of a target other than upos, in the order of their codes; by default,
            the labels in the files in alphabetical order.
        position: give the inputs the column `position`: the side of the head on which a dependent
            stands, and the distance of up to 4 words.
        tree: "heads" for the tree of HEAD; "chain" for chains, where HEAD and DEPREL are not read;
            "auto" for chains if no word of the training files has a head, and otherwise for heads.

    Raises:
        ConfigError: if an option cannot be used, or the target is a feature, too.
    """

    text_format = "conllu"
    expands_folders = True
    written_targets = COLUMN_OF.keys()

    features: Sequence[str] = ("form",)
    relation_column: Literal["deprel", "deps"] = "deprel"
    subtypes: bool = True
    target: str = "upos"
    labels: Sequence[str] | None = None
    position: bool = False
    tree: Literal["auto", "heads", "chain"] = "auto"

    def __post_init__(self) -> None:
        _refuse_features(self.features, self.target)
        column, tree = self.relation_column, self.tree
        if column not in ("deprel", "deps"):
            raise ConfigError(f"relation_column is '{column}'. Give 'deprel' or 'deps'.")
        if tree not in TREES:
            raise ConfigError(f"tree is '{tree}'. Give one of {', '.join(TREES)}.")
        self.is_enhanced = column == "deps"
        _refuse_target(self.target, self.labels, self.is_enhanced)
        if tree == "chain" and self.target != "deprel" and not self.is_enhanced:
            remedy = "Set relation_column=deps or target=deprel"
            refuse_unread("subtypes", self.subtypes, True, "tree=chain, without relations", remedy)
        self.has_relations = self.target != "deprel" and tree != "chain"
        self.is_open = self.target != "upos" and self.labels is None
        self.classes = UPOS if self.target == "upos" else (*(self.labels or ()), OTHER_LABEL)
        self._codes = {label: code for code, label in enumerate(self.classes)}
        self.words = ("word", "form") if "form" in self.features else None
        self.schema = self._make_schema()

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The kind of tree, and the classes of a target that has no fixed ones; see `Adapter`."""
        options: dict[str, Any] = {}
        if self.tree == "auto":
            has_heads = any(word.head != "_" for word in self._words(paths))
            options["tree"] = "heads" if has_heads else "chain"
        if self.is_open:
            labels = {self._label(word) for word in self._words(paths)} - {None}
            if labels <= {NO_FEATURES}:
                raise ConfigError(
                    f"no word has a value in the column {self.target.upper()}. Set data.target to "
                    "another column."
                )
            options["labels"] = sorted(map(str, labels))
        return options

    def _words(self, paths: Sequence[Path]) -> Iterator[Token]:
        """The words of all sentences that can be read."""
        for record in (record for path in paths for record in self.records(path)):
            with suppress(RecordError):  # `parse` reports it
                yield from read_sentence(record.content, record.line).words

    def notes(self, dag: TypedDAG) -> list[str]:
        """Sentences about chains of words, and about words with a label that is no class."""
        notes = []
        if self.tree == "chain":
            notes.append("sentences are chains of words (data.tree=chain): heads are not read")
        if self.target == "upos" or self.is_open:
            return notes
        count = int((dag.node_targets[self.target] == len(self.classes) - 1).sum())
        if count:
            words = count_of(count, "word")
            notes.append(f"{words} with a {self.target} that no class stands for")
        return notes

    def records(self, path: Path) -> Iterator[Record]:
        """One record per sentence, `content` being its lines; see `Adapter.records`."""
        return at_least_one(_sentences(scan_raw_lines(path), path), path, "sentences")

    def records_of_text(self, text: str) -> Iterator[Record]:
        """One record per sentence of a text; see `records`."""
        lines = ((line, b"") for line in text_lines(text))
        return at_least_one(_sentences(lines, Path()), Path(), "sentences")

    def named_texts(self, record: Record) -> Mapping[str, str]:
        """The comments `# NAME = TEXT`, such as `sent_id`; see `Adapter`."""
        comments = (line[1:].partition("=") for line in record.content if line.startswith("#"))
        return {name.strip(): text.strip() for name, equals, text in comments if equals}

    def text_of(self, record: Record) -> str:
        """The lines of the sentence in the file, with the blank lines after it; see `Adapter`.

        Blank lines before the first sentence belong to it.
        """
        if record.source:
            return record.source.decode("utf-8", "surrogateescape")
        return "".join(f"{line}\n" for line in (*(record.content or ()), ""))

    def write_back(self, text: str, predicted: PredictedNodes) -> str:
        """The lines with predicted columns, or after the comment `# graphfold_error = REASON`.

        `OTHER_LABEL` is written as `_`.
        """
        if predicted.reason:
            return with_fault(text, predicted.reason)
        values = {
            target: ["_" if label == OTHER_LABEL else label for label in labels]
            for target, labels in predicted.values.items()
        }
        return with_columns(text, values)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one sentence; see `Adapter.parse`."""
        sentence = read_sentence(record.content, record.line)
        words = sentence.words

        dependents = [[k - 1] if k else [] for k in range(len(words))]
        if self.tree != "chain":
            dependents = _dependents(words)
        relations = [self._relation(word.deprel) for word in words]
        columns = self._columns(words)
        columns[self.target] = [self._code(word, number) for number, word in enumerate(words, 1)]
        graph.nodes("word", len(words), _spans(sentence), **columns)
        for head, inputs in enumerate(dependents):
            if inputs:
                graph.inputs(head, inputs, columns=self._edge_columns(relations, head, inputs))
        graph.edges("next", range(len(words) - 1), range(1, len(words)))
        if self.is_enhanced:
            self._write_enhanced(sentence, graph)
        graph.output(*range(len(words)))
        graph.finish(line=record.line, text=sentence.text)

    def _columns(self, tokens: list[Token]) -> dict[str, Any]:
        return {name: [_cell(token, name) for token in tokens] for name in self.features}

    def _edge_columns(
        self, relations: Sequence[str | None], head: int, inputs: Sequence[int]
    ) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        if self.has_relations:
            columns["deprel"] = [relations[word] for word in inputs]
        if self.position:
            columns["position"] = [_position(word - head) for word in inputs]
        return columns

    def _label(self, word: Token) -> str | None:
        """The target of a word in the file, None where it is missing."""
        if self.target == "deprel":
            return self._relation(word.deprel)
        return _cell(word, self.target)

    def _code(self, word: Token, number: int) -> int | None:
        label = self._label(word)
        if label is None:
            return None
        if label not in self._codes and self.target == "upos":
            raise RecordError(
                f"token {number} has the UPOS '{label}', which is none of the universal tags",
                f"Use one of {', '.join(UPOS)}, or _ for none.",
                line=word.line,
            )
        return self._codes.get(label, len(self.classes) - 1)

    def _make_schema(self) -> Schema:
        columns = tuple(Column(name, "string") for name in self.features)
        deprel = (Column("deprel", "string"),)
        of_inputs: tuple[Column, ...] = deprel if self.has_relations else ()
        if self.position:
            of_inputs += (Column("position", "uint8", size=2 * _FAR),)
        types = (NodeType("word", features=columns), NodeType("empty", arity=0, features=columns))
        relations = (EdgeType("next"), EdgeType("enhanced", features=deprel))
        return Schema(
            types=types if self.is_enhanced else types[:1],
            inputs=EdgeType("inputs", features=of_inputs),
            relations=relations if self.is_enhanced else relations[:1],
            node_targets=(Column(self.target, "int64", names=self.classes),),
            graph_features=(Column("text", "string"),),
        )

    def _relation(self, deprel: str) -> str | None:
        if deprel == "_":
            return None
        return deprel if self.subtypes else deprel.split(":")[0]

    def _write_enhanced(self, sentence: Sentence, graph: GraphBuilder) -> None:
        graph.nodes("empty", len(sentence.empty), **self._columns(sentence.empty))
        tokens = sentence.words + sentence.empty
        numbers = {token.id: number for number, token in enumerate(tokens)}
        edges = [
            (number, numbers[head], self._relation(deprel))
            for number, token in enumerate(tokens)
            for head, deprel in _enhanced_heads(token, numbers)
        ]
        source, target, deprel = zip(*edges, strict=True) if edges else ((), (), ())
        graph.edges("enhanced", source, target, deprel=deprel)


def _dependents(words: Sequence[Token]) -> list[list[int]]:
    """The dependents of every word, 0-based and in word order, by the column HEAD.

    Raises:
        RecordError: with its line, if the heads are no tree.
    """

    def fault(token: int, what: str) -> RecordError:
        remedy = "Correct the HEAD column."
        if all(word.head == "_" for word in words):
            remedy = "Parse the sentence first, or train with data.tree=chain, without heads."
        return RecordError(what, remedy, line=words[token - 1].line)

    heads = [parse_head(w.head, k, len(words), fault) for k, w in enumerate(words, 1)]
    return find_dependents(heads, fault)[1]


def _refuse_features(features: Sequence[str], target: str) -> None:
    for name in features:
        if name not in FEATURES:
            raise ConfigError(
                f"features names '{name}', which is no feature of a word."
                f"{did_you_mean(name, FEATURES)} Use some of {', '.join(FEATURES)}."
            )
        if name == target:
            raise ConfigError(
                f"features names '{name}', which is the target: the answer would be given away. "
                "Leave it out of data.features, or set data.target to another column."
            )


def _refuse_target(target: str, labels: Sequence[str] | None, is_enhanced: bool) -> None:
    if target not in TARGETS:
        raise ConfigError(
            f"target is '{target}', which is no column that can be predicted."
            f"{did_you_mean(target, TARGETS)} Use one of {', '.join(TARGETS)}."
        )
    if target == "upos" and labels is not None:
        raise ConfigError("labels names the classes of upos, which are fixed. Leave it out.")
    if target == "deprel" and is_enhanced:
        raise ConfigError(
            "the enhanced graph has relations that give away the target deprel. Set "
            "relation_column=deprel, which leaves them out, or another target."
        )


def _position(offset: int) -> int:
    """The code, 0 to 7, of the distance from a head to its dependent; negative if before it."""
    distance = min(abs(offset), _FAR) - 1
    return distance if offset < 0 else _FAR + distance


def _sentences(source: Iterable[tuple[Line, bytes]], path: Path) -> Iterator[Record]:
    """The records of the lines of a file."""
    lines: list[Line] = []
    raw: list[bytes] = []
    has_ended = False
    limit = RecordLimit(path)
    for line, content in source:
        if line.text.strip(" \t"):
            if has_ended:
                yield _sentence(lines, raw)
                lines, raw, has_ended = [], [], False
                limit.begin()
            limit.add(line.number, len(line.text))
            lines.append(line)
        else:
            has_ended = bool(lines)
        raw.append(content)
    if lines:
        yield _sentence(lines, raw)


def _sentence(lines: Sequence[Line], raw: Sequence[bytes]) -> Record:
    fault = next((line.fault for line in lines if line.fault is not None), None)
    texts = [line.text for line in lines]
    return Record(lines[0].number, texts, fault, source=b"".join(raw))


def _cell(token: Token, name: str) -> str | None:
    """One column of a token; None where `_` stands for no annotation.

    `_` is a value as a form, as the lemma of that form, and as features: a word without any.
    """
    value = str(getattr(token, name))
    is_value = name in ("form", "feats") or (name == "lemma" and token.form == "_")
    return value if value != "_" or is_value else None


def _spans(sentence: Sentence) -> list[Span]:
    """The characters of the text that each word covers, shared by the words of one token."""
    surface = sentence.surface()
    spans = align([form for form, _ in surface], sentence.text or "")
    if spans is None:
        return [NO_SPAN] * len(sentence.words)
    return [span for span, (_, count) in zip(spans, surface, strict=True) for _ in range(count)]


def _enhanced_heads(token: Token, numbers: dict[str, int]) -> Iterator[tuple[str, str]]:
    """The head and the relation of each enhanced edge into a token; the root has none."""
    for part in token.deps.split("|"):
        head, colon, deprel = part.partition(":")
        if not colon or (head != "0" and head not in numbers):
            fault = f"has '{part}' in DEPS, which is no HEAD:RELATION of this sentence"
            raise RecordError(
                f"token {token.id} " + ("has no DEPS" if part == "_" else fault),
                "Correct the DEPS column, or set relation_column=deprel.",
                line=token.line,
            )
        if head != "0":
            yield head, deprel
