"""One bracketed tree: reading its text into columns, transforming it, and writing it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphfold.errors import RecordError

#: Blanks are ASCII blank, tab and newline: U+00A0 is a character like any other.
_TOKEN = re.compile(r"[()]|[^ \t\n()]+")

#: Joins the labels of a chain that is merged into one node, as in NLTK.
JOINT = "+"

#: The label of an empty element (a trace) in the Penn Treebank.
TRACE = "-NONE-"

Span = tuple[int, int]


@dataclass(frozen=True)
class BracketText:
    """The text of one record, and its place in its file.

    Args:
        text: from the first bracket of the tree to what follows its last one.
        line: the 1-based line of its first character.
        column: the 1-based column of its first character.
    """

    text: str
    line: int
    column: int

    def fault(self, what: str, offset: int, then: str) -> RecordError:
        """The error "`what` at column N `then`" about the character at `offset`."""
        before = self.text[:offset]
        column = offset + self.column if "\n" not in before else offset - before.rindex("\n")
        return RecordError(
            f"{what} at column {column} {then}",
            "Correct the brackets, or set data.on_error=skip.",
            line=self.line + before.count("\n"),
        )


@dataclass
class BracketTree:
    """The nodes of one tree as columns: children before parents, words in text order, root last."""

    labels: list[str | None] = field(default_factory=list)
    words: list[str | None] = field(default_factory=list)  # None for a phrase
    children: list[list[int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)  # characters of the text, brackets included

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, label: str | None, word: str | None, children: list[int], span: Span) -> int:
        """Adds a node after its children; returns its number."""
        self.labels.append(label)
        self.words.append(word)
        self.children.append(children)
        self.spans.append(span)
        return len(self.labels) - 1

    def nodes(self) -> Iterator[tuple[str | None, str | None, list[int], Span]]:
        """Label, word, children and span of every node."""
        return zip(self.labels, self.words, self.children, self.spans, strict=True)


class _Open:
    """A bracket that is not closed yet."""

    __slots__ = ("children", "label", "start", "token")

    def __init__(self, start: int) -> None:
        self.start = start
        self.label: str | None = None
        self.token: tuple[str, Span] | None = None  # a label or a word, not decided yet
        self.children: list[int] = []


def read_tree(
    source: BracketText, drops_outer: bool, is_label: Callable[[str], bool] | None = None
) -> BracketTree:
    """Reads `(label word)` and `(label child ...)`, in linear time and without recursion.

    Args:
        source: the text of one tree.
        drops_outer: an outer bracket without label around one tree, as in Penn files, is dropped.
        is_label: for trees whose nodes may lack labels: the first token of a bracket is a label
            only if this function returns True and something follows the token. Words need no
            brackets then, `(good film)` or `((Good) (film))`, and a bracket without label around
            one tree is dropped.

    Raises:
        RecordError: with line and column, if the brackets do not make one tree.
    """
    tree = BracketTree()
    stack: list[_Open] = []
    for match in _TOKEN.finditer(source.text):
        token, start = match.group(), match.start()
        if token == "(":
            if not stack and len(tree):
                raise source.fault("a second tree", start, "follows the first")
            if stack:
                _settle_token(source, tree, stack[-1], is_label, None)
            stack.append(_Open(start))
        elif token == ")":
            if not stack:
                raise source.fault("closing bracket", start, "closes nothing")
            bracket = stack.pop()
            single = len(bracket.children) == 1 and bracket.token is None and bracket.label is None
            if is_label is not None and single:
                node = bracket.children[0]
            elif single and drops_outer and not stack:
                continue
            else:
                node = _close(source, tree, bracket, match.end(), is_label is not None)
            if stack:
                stack[-1].children.append(node)
        elif not stack:
            raise source.fault(f"text '{token}'", start, "is outside the tree")
        else:
            _read_token(source, tree, stack[-1], (token, match.span()), is_label)
    if stack:
        raise source.fault("bracket opened", stack[-1].start, "is never closed")
    return tree


def _read_token(
    source: BracketText,
    tree: BracketTree,
    bracket: _Open,
    token: tuple[str, Span],
    is_label: Callable[[str], bool] | None,
) -> None:
    if is_label is None and bracket.children:
        raise _mixed(source, bracket, token[0])
    if is_label is None and bracket.label is None:
        bracket.label = token[0]
        return
    _settle_token(source, tree, bracket, is_label, token[0])
    bracket.token = token


def _settle_token(
    source: BracketText,
    tree: BracketTree,
    bracket: _Open,
    is_label: Callable[[str], bool] | None,
    word: str | None,
) -> None:
    """Decides whether the last token is a label, now that a word or (None) a bracket follows it."""
    if bracket.token is None:
        return
    token, span = bracket.token
    bracket.token = None
    if is_label is None and word is None:
        raise _mixed(source, bracket, token)
    if is_label is None:
        words = f"holds two words, '{token}' and '{word}'"
        raise source.fault("bracket opened", bracket.start, words)
    if bracket.label is None and not bracket.children and is_label(token):
        bracket.label = token
    else:
        bracket.children.append(tree.add(None, token, [], span))


def _close(
    source: BracketText, tree: BracketTree, bracket: _Open, end: int, may_lack_label: bool
) -> int:
    label, start = bracket.label, bracket.start
    if label is None and bracket.token is None and not bracket.children:
        raise source.fault("bracket opened", start, "is empty")
    if label is None and not may_lack_label:
        raise source.fault("bracket opened", start, "has no label")
    if bracket.token is None and not bracket.children:
        fault = f"has the label '{label}', but neither a word nor a child"
        raise source.fault("bracket opened", start, fault)
    if bracket.token is None:
        return tree.add(label, None, bracket.children, (start, end))
    word, span = bracket.token
    if not bracket.children:
        return tree.add(label, word, [], (start, end))
    bracket.children.append(tree.add(None, word, [], span))
    return tree.add(label, None, bracket.children, (start, end))


def _mixed(source: BracketText, bracket: _Open, word: str) -> RecordError:
    return source.fault(
        "bracket opened", bracket.start, f"holds both the word '{word}' and a child"
    )


def remove_traces(tree: BracketTree) -> BracketTree:
    """The tree without empty elements (-NONE-) and without phrases that held nothing else."""
    smaller = BracketTree()
    new: list[int | None] = []
    for label, word, children, span in tree.nodes():
        inner = [node for node in (new[child] for child in children) if node is not None]
        is_empty = not inner if word is None else label == TRACE
        new.append(None if is_empty else smaller.add(label, word, inner, span))
    return smaller


def strip_functions(tree: BracketTree) -> BracketTree:
    """The tree with `NP` for `NP-SBJ-1` and `NP=2`; labels such as `-LRB-` stay."""
    labels = [
        label if label is None or label.startswith("-") else re.split("[-=]", label, maxsplit=1)[0]
        for label in tree.labels
    ]
    return BracketTree(labels, tree.words, tree.children, tree.spans)


def collapse_unary(
    tree: BracketTree, join_labels: bool, missing: Container[str] = ()
) -> BracketTree:
    """The tree with every chain of single children merged into one node, words included.

    Args:
        tree: the tree.
        join_labels: the merged node is labelled `S+VP+VB`, from top to bottom, as NLTK does with
            `collapse_unary(collapsePOS=True, collapseRoot=True)`; otherwise it keeps the top label.
        missing: labels that mean a missing label; a chain with one of them has no label.
    """

    def joined(chain: list[str | None]) -> str | None:
        named = [label for label in reversed(chain) if label is not None and label not in missing]
        return JOINT.join(named) if len(named) == len(chain) else None

    merged = BracketTree()
    new: list[int] = []
    chains: list[list[str | None]] = []  # the labels of each merged node, from bottom to top
    for label, word, children, span in tree.nodes():
        if len(children) == 1:
            node = new[children[0]]
            merged.spans[node] = span
            chains[node].append(label)
        else:
            node = merged.add(label, word, [new[child] for child in children], span)
            chains.append([label])
        new.append(node)
    merged.labels = [joined(chain) if join_labels else chain[-1] for chain in chains]
    return merged


def split_joint_labels(tree: BracketTree, label_of: Mapping[Span, str]) -> dict[Span, str]:
    """The labels of the nodes of merged chains, out of the joint labels of their top nodes.

    A label is divided if it has as many parts as the chain has nodes.

    Args:
        tree: the tree before its chains were merged.
        label_of: span of a node -> its label, of merged nodes.
    """
    labels = dict(label_of)
    for node, span in enumerate(tree.spans):
        parts = label_of.get(span, "").split(JOINT)
        chain = [node]
        while len(chain) < len(parts) and len(tree.children[chain[-1]]) == 1:
            chain += tree.children[chain[-1]]
        ends = len(tree.children[chain[-1]]) != 1
        if len(parts) > 1 and len(chain) == len(parts) and ends:
            labels |= zip((tree.spans[member] for member in chain), parts, strict=True)
    return labels


def binarize(tree: BracketTree, branching: str, label_new: bool) -> BracketTree:
    """The tree with no more than two children per phrase.

    Args:
        tree: the tree.
        branching: "right" makes (NP a b c) into (NP a (@NP b c)), "left" into (NP (@NP a b) c).
        label_new: a new node is labelled `@NP`, as parsers do; otherwise it has no label.
    """
    binary = BracketTree()
    new: list[int] = []

    def pair(label: str | None, *children: int) -> int:
        name = f"@{label}" if label_new else None
        span = (binary.spans[children[0]][0], binary.spans[children[1]][1])
        return binary.add(name, None, [*children], span)

    for label, word, children, span in tree.nodes():
        inner = [new[child] for child in children]
        if len(inner) > 2 and branching == "right":
            rest = inner[-1]
            for child in reversed(inner[1:-1]):
                rest = pair(label, child, rest)
            inner = [inner[0], rest]
        elif len(inner) > 2:
            rest = inner[0]
            for child in inner[1:-1]:
                rest = pair(label, rest, child)
            inner = [rest, inner[-1]]
        new.append(binary.add(label, word, inner, span))
    return binary


#: The label of the tree that stands in the place of a record without a prediction.
ERROR = "ERROR"


def write_tree(tree: BracketTree, labels: Sequence[str]) -> str:
    """The text `(label child ...)` of a tree, written without recursion.

    Args:
        tree: the tree.
        labels: of each node.
    """
    parts: list[str] = []
    rest: list[int | str] = [len(tree) - 1]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        parts.append(f" ({labels[item]}")
        rest.append(")")
        word = tree.words[item]
        if word is None:
            rest += reversed(tree.children[item])
        else:
            rest.append(f" {word}")
    return "".join(parts).lstrip(" ")


def write_fault(reason: str) -> str:
    """`(ERROR reason)`: a tree of one word in place of a record without a prediction."""
    word = "_".join(reason.split()).replace("(", "-LRB-").replace(")", "-RRB-")
    return f"({ERROR} {word})"
