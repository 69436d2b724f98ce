"""Bracketed constituency trees: Stanford Sentiment Treebank, Penn Treebank and the like.

First how a file is cut into trees, broken ones included; then the adapter.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files import record_limit
from graphfold.datasets.files.record_limit import RecordLimit
from graphfold.datasets.files.table_columns import MOST_CLASSES
from graphfold.datasets.files.text_files import Line, at_least_one, scan_lines, text_lines
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.datasets.readers.bracket_tree import (
    JOINT,
    BracketText,
    BracketTree,
    binarize,
    collapse_unary,
    read_tree,
    remove_traces,
    split_joint_labels,
    strip_functions,
    write_fault,
    write_tree,
)
from graphfold.errors import ConfigError, DataError, LeftOut, RecordError
from graphfold.options import refuse_unread

_BRACKET = re.compile(r"[()]")
_INTEGER = re.compile("-?[0-9]+")
_BLANKS = " \t"


def find_tree_indent(lines: Iterable[str]) -> int | None:
    """The indent of lines that begin a tree, as the first tree of a file shows it.

    Returns:
        The number of blanks before the first tree. None if a further line of this tree begins with
        a bracket and is indented no deeper: then only brackets show where a tree ends.
    """
    depth, indent, length, goes_on_unindented = 0, 0, 0, False
    for line in lines:
        length += len(line)
        if length > record_limit.LONGEST_RECORD:
            break
        if depth > 0 and _begins_tree(line, indent):
            goes_on_unindented = True
        elif depth == 0:
            indent = _indent(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0 and ")" in line:
            return None if goes_on_unindented else indent
    return indent


def cut_trees(
    lines: Iterable[tuple[int, str]], indent: int | None, limit: RecordLimit
) -> Iterator[BracketText]:
    """The texts of the trees of a file, faulty ones too; text after a tree belongs to it.

    Args:
        lines: the numbered lines of the file.
        indent: a line that begins with a bracket, after so many blanks or fewer, begins the next
            tree, whether the open one is closed or not; None if no line does.
        limit: of the length of a tree.

    Raises:
        DataError: if a tree is longer than that.
    """
    tree = _OpenTree()
    for number, line in lines:
        if indent is not None and tree.depth > 0 and _begins_tree(line, indent):
            yield tree.text()
            tree = _OpenTree()
        if not tree.parts:
            limit.begin()
        limit.add(number, len(line))
        begin = 0  # of the rest of the line
        for match in _BRACKET.finditer(line):
            if match.group() == ")":
                tree.close()
                continue
            if tree.is_closed:
                tree.extend(number, line, begin, match.start())
                yield tree.text()
                tree, begin = _OpenTree(), match.start()
                limit.begin()
                limit.add(number, len(line) - begin)
            tree.depth += 1
        tree.extend(number, line, begin, len(line))
        if tree.depth == 0 and tree.parts:
            yield tree.text()
            tree = _OpenTree()
    if tree.parts:
        yield tree.text()


class _OpenTree:
    """The text of a tree that has not ended."""

    def __init__(self) -> None:
        self.parts: list[str] = []  # its text, line by line
        self.line = self.column = self.depth = 0
        self.is_closed = False  # whether its first bracket is closed

    def close(self) -> None:
        """Counts a closing bracket; one too many does not change the depth."""
        self.is_closed = self.is_closed or self.depth == 1
        self.depth = max(self.depth - 1, 0)

    def extend(self, number: int, line: str, begin: int, end: int) -> None:
        """Adds a part of a line; the first part begins at its first character that is no blank."""
        if not self.parts:
            begin = end - len(line[begin:end].lstrip(_BLANKS))
            self.line, self.column = number, begin + 1
        if self.parts or begin < end:
            self.parts.append(line[begin:end])

    def text(self) -> BracketText:
        """The text so far."""
        return BracketText("\n".join(self.parts).rstrip(_BLANKS + "\n"), self.line, self.column)


def _begins_tree(line: str, indent: int) -> bool:
    """True if a line begins with a bracket, indented by `indent` characters at most."""
    return line.lstrip(_BLANKS).startswith("(") and _indent(line) <= indent


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(_BLANKS))


#: Labels that stand for a missing target.
MISSING_LABELS = ("_", "?")

#: Another one in trees to predict, unless it is a class.
ALSO_MISSING = "-1"


@dataclass(eq=False)
class BracketsAdapter(Adapter):
    """Reads trees in brackets, `(label word)` and `(label child child ...)`; one record per tree.

    Formats: the Stanford Sentiment Treebank (Socher et al. 2013, https://aclanthology.org/D13-1170),
    one tree per line with a label 0 .. 4 on every node; the merged files of the Penn Treebank
    (Marcus et al. 1993, https://aclanthology.org/J93-2004), a tree over many lines inside a bracket
    without label, which is dropped. Several trees may stand on a line.

    The first tree of a file shows its layout. If it stands on one line, or the lines that continue
    it are indented, then a line that begins with a bracket and is indented no deeper than that tree
    begins a tree: a bracket that is never closed costs its own tree only. If the first tree goes on
    in lines that begin with a bracket and are not indented, brackets alone tell where a tree ends.

    Schema: the type `word` (no inputs; the string `form`) and the type `phrase` (its children in
    order). `label` is a node target of integers, or else a string of both types. Nodes are the
    words in order, then the phrases, children first; the output is the root. Spans are characters
    of the record, from the first bracket of the tree.

    For prediction, labels that are targets may be absent, `_`, `?` or -1, and so may the brackets
    of words: `(_ (_ good) (_ film))`, `((good) (film))` and `(good film)` are the same tree.

    Args:
        num_classes: labels are integers from 0 to `num_classes - 1`, one on every node; None for
            labels of any kind.
        labels: whether labels of any kind are a "feature" of the nodes or their "target"; a target
            may be missing, `_` or `?`. None for target under `num_classes` or `classes`, and else
            feature.
        label_names: the labels that are targets, in the order of their codes; by default, those in
            the files in alphabetical order.
        classes: class -> its labels, such as {negative: [0, 1], positive: [3, 4]}; a node of
            another label has no target. None for a class for each label.
        binarize: split phrases of more than two children, so that `phrase` has the arity 2; the
            second slot of a phrase with one child is absent. A new node of `NP` is labelled `@NP`,
            and has no target.
        branching: how to split, "right" for (NP a (@NP b c)) or "left" for (NP (@NP a b) c).
        collapse_unary: merge every chain of single children into its lowest node, a word included.
            Its label is `S+VP`, from top to bottom, and missing where one of them is; but that of
            the top where a target is one of `num_classes` or `classes`.
        remove_traces: leave out empty elements (-NONE-) and phrases that hold nothing else.
        strip_functions: read `NP-SBJ-1` as `NP`.
        sequence: whether the relation `next` leads from each word to the next one.

    Raises:
        ConfigError: if an option cannot be used.
    """

    text_format = "brackets"
    expands_folders = True
    written_targets = ("label",)
    words = ("word", "form")

    num_classes: int | None = None
    labels: Literal["feature", "target"] | None = None
    label_names: Sequence[str] | None = None
    classes: Mapping[str, Sequence[str | int]] | None = None
    binarize: bool = False
    branching: str = "right"
    collapse_unary: bool = False
    remove_traces: bool = False
    strip_functions: bool = False
    sequence: bool = False

    def __post_init__(self) -> None:
        self.is_numbered, self.merges = self.num_classes is not None, self.classes is not None
        self.reads_targets = True
        self._check_options()
        self.joins = self.collapse_unary and not (self.is_numbered or self.merges)
        self.names = self._names()
        self.codes = None if self.names is None else _codes(self.names, self.classes)
        label: tuple[Column, ...] = (Column("label", "string"),)
        target: tuple[Column, ...] = ()
        if self.names is not None and self.codes is not None:
            # Integers are grades of one thing, such as sentiment.
            integers = self.is_numbered or (
                self.merges and all(map(_INTEGER.fullmatch, self.codes))
            )
            shown, size = () if self.is_numbered else self.names, len(self.names)
            label = ()
            target = (Column("label", "int64", size=size, ordered=integers, names=shown),)
        self.schema = Schema(
            types=(
                NodeType("word", arity=0, features=(Column("form", "string"), *label)),
                NodeType("phrase", arity=2 if self.binarize else None, features=label),
            ),
            relations=(EdgeType("next"),) if self.sequence else (),
            node_targets=target,
        )

    def _check_options(self) -> None:
        number = self.num_classes
        is_number = isinstance(number, int) and 0 < number <= MOST_CLASSES
        if self.is_numbered and not is_number:
            raise ConfigError(
                f"num_classes is {number!r}. Give a positive integer up to {MOST_CLASSES}, or null."
            )
        if self.branching not in ("right", "left"):
            raise ConfigError(f"branching is '{self.branching}'. Give 'right' or 'left'.")
        if self.is_numbered and (self.remove_traces or self.strip_functions):
            raise ConfigError(
                "remove_traces and strip_functions read labels such as -NONE- and NP-SBJ, but "
                "num_classes asks for integers. Set one or the other."
            )
        if self.is_numbered or self.merges:
            beside = f"{'num_classes' if self.is_numbered else 'classes'}, of targets"
            refuse_unread("labels", self.labels or "target", "target", beside, "Leave that out")
        if not self.binarize:
            remedy = "Set binarize=true"
            refuse_unread("branching", self.branching, "right", "binarize=false", remedy)

    def _names(self) -> tuple[str, ...] | None:
        """The labels that are targets, in order of their codes; empty until the files are read.

        None if labels are features.
        """
        if self.classes is not None:
            if self.is_numbered or self.label_names is not None:
                raise ConfigError("classes names them all. Leave num_classes and label_names out.")
            return tuple(self.classes)
        if self.num_classes is not None and self.label_names is None:
            return tuple(map(str, range(self.num_classes)))
        if self.label_names is not None and (self.is_numbered or self.labels != "target"):
            raise ConfigError(
                "label_names names targets. Leave num_classes out, and set labels=target."
            )
        return tuple(self.label_names or ()) if self.labels == "target" else None

    @property
    def missing_labels(self) -> tuple[str, ...]:
        """The labels that stand for a missing target; none if labels are features."""
        if self.codes is None:
            return ()
        others = () if self.reads_targets else (ALSO_MISSING,)
        return tuple(label for label in (*MISSING_LABELS, *others) if label not in self.codes)

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """`label_names`, where labels are targets and their names are not given; see `Adapter`."""
        if self.names is None or self.names:
            return {}
        labels: set[str | None] = set()
        for path in paths:
            for record in self.records(path):
                with suppress(RecordError):  # `parse` raises it again, with its place
                    labels |= {*self._transform(read_tree(record.content, True)).labels}
        labels -= {None}
        names = sorted(map(str, labels - {*MISSING_LABELS}))
        if labels and not names:
            raise DataError.in_file(
                paths[0],
                "no tree has a label to learn from. Give labelled trees; others can "
                "only be predicted.",
            )
        return {"label_names": names} if names else {}

    def without_targets(self) -> BracketsAdapter:
        """A copy for prediction: the same schema, but labels that are targets may be absent."""
        clone = copy.copy(self)
        clone.reads_targets = self.codes is None
        return clone

    def records(self, path: Path) -> Iterator[Record]:
        """One record per tree, `content` being its `BracketText`; see `Adapter.records`."""
        return _trees(lambda: scan_lines(path), path)

    def records_of_text(self, text: str) -> Iterator[Record]:
        """One record per tree of a text; see `records`."""
        return _trees(lambda: text_lines(text), Path())

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one tree; see `Adapter.parse`."""
        source: BracketText = record.content
        tree = self._read(source)
        if self.is_numbered:  # every node has one of the labels
            self._check_labels(source, tree)
        tree = self._transform(tree)
        if not self.is_numbered:
            self._check_labels(source, tree)
        if not len(tree):
            raise LeftOut(
                "the tree holds nothing but empty elements", "Set remove_traces=false to keep it."
            )
        _write(tree, graph, self.codes, pad=self.binarize)
        if self.sequence:
            num_words = sum(word is not None for word in tree.words)
            graph.edges("next", range(num_words - 1), range(1, num_words))
        graph.finish(line=record.line)

    def added_nodes(self, dag: TypedDAG) -> Tensor | None:
        """[num_nodes] bool, the phrases that `binarize` added; see `Adapter.added_nodes`.

        A phrase of the record begins with a bracket, before its first child; an added one begins
        where its first child does.
        """
        if not self.binarize:
            return None
        # By NumPy: torch would take a tenth of the millisecond in which a tree is predicted.
        kinds, begins = dag.op_type.numpy(), dag.span.numpy()[:, 0]
        added = kinds == self.schema.type_index("phrase")
        phrases = added.nonzero()[0]
        first = dag.input_index.numpy()[dag.input_ptr.numpy()[phrases]]
        added[phrases] = begins[phrases] == begins[first]
        return torch.from_numpy(added)

    def text_of(self, record: Record) -> str:
        """The tree from its first bracket on; see `Adapter.text_of`."""
        return "" if record.content is None else str(record.content.text)

    def write_back(self, text: str, predicted: PredictedNodes) -> str:
        """The tree of the input on one line, with the predicted labels.

        The nodes of a chain that was collapsed into `S+VP` share the parts of the predicted label;
        if their number differs, the top has the label and the others `_`. Nodes that
        `remove_traces` leaves out keep their labels. A record without a prediction is
        `(ERROR reason)`.
        """
        if predicted.reason:
            return write_fault(predicted.reason) + "\n"
        tree = self._read(BracketText(text, 1, 1))
        pairs = zip(predicted.spans, predicted.values["label"], strict=True)
        label_of = {(s[0], s[1]): str(label) for s, label in pairs if s is not None}
        read = remove_traces(tree) if self.remove_traces else tree
        if self.joins:
            label_of = split_joint_labels(read, label_of)
        missing = MISSING_LABELS[0]
        label_of |= dict.fromkeys({*read.spans} - label_of.keys(), missing)
        labels = [label_of.get(span) or label or missing for label, _, _, span in tree.nodes()]
        return write_tree(tree, labels) + "\n"

    def _read(self, source: BracketText) -> BracketTree:
        """The tree of a text; for prediction its nodes may lack labels."""
        if self.codes is None or self.reads_targets:
            return read_tree(source, drops_outer=not self.is_numbered)
        return self._read_for_prediction(source, self.codes)

    def _read_for_prediction(self, source: BracketText, codes: Mapping[str, int]) -> BracketTree:
        """A tree with or without labels: are the tokens after brackets labels or words?

        They are labels if one of them is a class. If all classes are numbers, other numbers beside
        them are a fault.
        """
        classes = {*codes, *self.missing_labels}
        if self.joins:
            classes |= {part for label in codes for part in label.split(JOINT)}
        if self.is_numbered or (self.merges and all(map(_INTEGER.fullmatch, codes))):
            number = _INTEGER.fullmatch
            tree = read_tree(source, True, lambda token: token in classes or bool(number(token)))
            labels = {label for label in tree.labels if label is not None}
            if labels <= classes or (self.merges and labels):
                return tree
            if labels & classes:
                self._refuse_label(source, tree, classes | {None})
        else:
            with suppress(RecordError):  # some bracket has no label
                tree = read_tree(source, drops_outer=True)
                plain = strip_functions(tree) if self.strip_functions else tree
                if classes & {*plain.labels}:
                    return tree
        return read_tree(source, True, classes.__contains__)

    def _check_labels(self, source: BracketText, tree: BracketTree) -> None:
        """Raises RecordError for a label that is read as a target and is none of its classes."""
        if self.codes is None or self.merges or not self.reads_targets:
            return
        missing = () if self.is_numbered else (*self.missing_labels, None)
        self._refuse_label(source, tree, {*self.codes, *missing})

    def _refuse_label(
        self, source: BracketText, tree: BracketTree, allowed: Container[str | None]
    ) -> None:
        names = self.names or ()
        choices = f"an integer from 0 to {len(names) - 1}"
        if not self.is_numbered:
            choices = f"one of the labels {', '.join(names)}"
        for label, span in zip(tree.labels, tree.spans, strict=True):
            if label not in allowed:
                fault = f"has the label '{label}', which is not {choices}"
                raise source.fault("bracket opened", span[0], fault)

    def _transform(self, tree: BracketTree) -> BracketTree:
        if self.remove_traces:
            tree = remove_traces(tree)
        if self.strip_functions:
            tree = strip_functions(tree)
        if self.collapse_unary:
            tree = collapse_unary(tree, self.joins, self.missing_labels)
        if self.binarize:
            tree = binarize(tree, self.branching, label_new=self.codes is None)
        return tree


def _codes(
    names: Sequence[str], classes: Mapping[str, Sequence[str | int]] | None
) -> dict[str, int]:
    """Label -> the number of its class."""
    if classes is None:
        return {name: k for k, name in enumerate(names)}
    lists = [labels if isinstance(labels, list | tuple) else () for labels in classes.values()]
    pairs = [(str(label), k) for k, labels in enumerate(lists) for label in labels]
    codes = dict(pairs)
    if len(codes) < len(pairs) or len({*codes.values()}) < max(len(classes), 2):
        raise ConfigError(
            f"classes is {dict(classes)}. Give two classes or more, each with labels of its own."
        )
    return codes


def _trees(lines: Callable[[], Iterator[Line]], path: Path) -> Iterator[Record]:
    """The records of a file.

    Args:
        lines: begins a reading of its lines; there are two.
        path: the file, for messages.
    """
    indent = find_tree_indent(line.text for line in lines())
    faults: dict[int, RecordError] = {}  # line -> fault of its bytes

    def texts() -> Iterator[tuple[int, str]]:
        for number, text, fault in lines():
            if fault is not None:
                faults[number] = fault
            yield number, text

    def record(tree: BracketText) -> Record:
        numbers = range(tree.line, tree.line + tree.text.count("\n") + 1) if faults else ()
        return Record(tree.line, tree, next((faults[n] for n in numbers if n in faults), None))

    trees = cut_trees(texts(), indent, RecordLimit(path))
    yield from at_least_one(map(record, trees), path, "trees")


def _write(tree: BracketTree, graph: GraphBuilder, codes: dict[str, int] | None, pad: bool) -> None:
    labels = tree.labels if codes is None else [codes.get(label or "") for label in tree.labels]
    words = [node for node, word in enumerate(tree.words) if word is not None]
    phrases = [node for node, word in enumerate(tree.words) if word is None]
    number = {node: new for new, node in enumerate(words + phrases)}
    graph.nodes(
        "word",
        len(words),
        spans=[tree.spans[node] for node in words],
        form=[tree.words[node] for node in words],
        label=[labels[node] for node in words],
    )
    graph.nodes(
        "phrase",
        len(phrases),
        spans=[tree.spans[node] for node in phrases],
        label=[labels[node] for node in phrases],
    )
    for node in phrases:
        inputs: list[int | None] = [number[child] for child in tree.children[node]]
        graph.inputs(number[node], inputs + [None] * (pad * (2 - len(inputs))))
    graph.output(number[len(tree) - 1])
