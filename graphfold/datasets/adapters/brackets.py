"""Bracketed constituency trees: Stanford Sentiment Treebank, Penn Treebank and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.adapters.bracket_layout import cut_trees, find_tree_indent
from graphfold.datasets.adapters.bracket_tree import (
    BracketText,
    BracketTree,
    binarize,
    collapse_unary,
    read_tree,
    remove_traces,
    strip_functions,
)
from graphfold.datasets.files.text_files import Line, at_least_one, scan_lines
from graphfold.errors import ConfigError, LeftOut, RecordError


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
    order). Without `num_classes` both have the string `label`. With it, `label` is a node target of
    integers. Nodes are the words in order, then the phrases, children first; the output is the
    root. Spans are characters of the record, from the first bracket of the tree.

    Args:
        num_classes: labels are integers from 0 to `num_classes - 1`, one on every node; None for
            labels of any kind.
        binarize: split phrases of more than two children, so that `phrase` has the arity 2; the
            second slot of a phrase with one child is absent. A new node of `NP` is labelled `@NP`,
            and has no target.
        branching: how to split, "right" for (NP a (@NP b c)) or "left" for (NP (@NP a b) c).
        collapse_unary: merge every chain of single children into its lowest node, a word included.
            The merged label is `S+VP`, from top to bottom; the target is that of the top.
        remove_traces: leave out empty elements (-NONE-) and phrases that hold nothing else.
        strip_functions: read `NP-SBJ-1` as `NP`.

    Raises:
        ConfigError: if an option cannot be used.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        binarize: bool = False,
        branching: str = "right",
        collapse_unary: bool = False,
        remove_traces: bool = False,
        strip_functions: bool = False,
    ) -> None:
        if num_classes is not None and (not isinstance(num_classes, int) or num_classes < 1):
            raise ConfigError(f"num_classes is {num_classes!r}. Give a positive integer, or null.")
        if branching not in ("right", "left"):
            raise ConfigError(f"branching is '{branching}'. Give 'right' or 'left'.")
        if num_classes is not None and (remove_traces or strip_functions):
            raise ConfigError(
                "remove_traces and strip_functions read labels such as -NONE- and NP-SBJ, but "
                "num_classes asks for integers. Set one or the other."
            )
        self.binarize = binarize
        self.branching = branching
        self.collapse_unary = collapse_unary
        self.remove_traces = remove_traces
        self.strip_functions = strip_functions
        self.codes = None if num_classes is None else {str(k): k for k in range(num_classes)}
        self.schema = _schema(num_classes, 2 if binarize else None)

    def records(self, path: Path) -> Iterator[Record]:
        """One record per tree, `content` being its `BracketText`; see `Adapter.records`."""
        indent = find_tree_indent(_texts(scan_lines(path), {}))
        faults: dict[int, RecordError] = {}
        trees = cut_trees(_texts(scan_lines(path), faults), indent)
        records = (Record(tree.line, tree, _first_fault(tree, faults)) for tree in trees)
        yield from at_least_one(records, path, "trees")

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one tree; see `Adapter.parse`."""
        tree = read_tree(record.content, drops_outer=self.codes is None)
        if self.codes is not None:
            _check_labels(record.content, tree, self.codes)
        tree = self._transform(tree)
        if not len(tree):
            raise LeftOut(
                "the tree holds nothing but empty elements", "Set remove_traces=false to keep it."
            )
        _write(tree, graph, self.codes, pad=self.binarize)
        graph.finish(line=record.line)

    def _transform(self, tree: BracketTree) -> BracketTree:
        if self.remove_traces:
            tree = remove_traces(tree)
        if self.strip_functions:
            tree = strip_functions(tree)
        if self.collapse_unary:
            tree = collapse_unary(tree, join_labels=self.codes is None)
        if self.binarize:
            tree = binarize(tree, self.branching, label_new=self.codes is None)
        return tree


def _schema(num_classes: int | None, arity: int | None) -> Schema:
    label = () if num_classes is not None else (Column("label", "string"),)
    return Schema(
        types=(
            NodeType("word", arity=0, features=(Column("form", "string"), *label)),
            NodeType("phrase", arity=arity, features=label),
        ),
        node_targets=() if num_classes is None else (Column("label", "int64", size=num_classes),),
    )


def _texts(lines: Iterable[Line], faults: dict[int, RecordError]) -> Iterator[tuple[int, str]]:
    """The numbered texts of the lines; what is wrong with their bytes goes to `faults`."""
    for number, text, fault in lines:
        if fault is not None:
            faults[number] = fault
        yield number, text


def _first_fault(tree: BracketText, faults: dict[int, RecordError]) -> RecordError | None:
    if not faults:
        return None
    numbers = range(tree.line, tree.line + tree.text.count("\n") + 1)
    return next((faults[number] for number in numbers if number in faults), None)


def _check_labels(source: BracketText, tree: BracketTree, codes: dict[str, int]) -> None:
    for label, span in zip(tree.labels, tree.spans, strict=True):
        if label not in codes:
            wanted = f"the label '{label}', which is not an integer from 0 to {len(codes) - 1}"
            raise source.fault("bracket opened", span[0], f"has {wanted}")


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
