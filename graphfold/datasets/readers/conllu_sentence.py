"""One sentence of CoNLL-U: words, multiword tokens, empty nodes, heads, and places in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graphfold.errors import RecordError, shortened

Span = tuple[int, int]


def align(tokens: Sequence[str], text: str) -> list[Span] | None:
    """First and last-plus-one character of every token, found from left to right.

    Between two tokens there may be blanks of any kind and nothing else.

    Returns:
        One span per token; None if some token is not where it should be.
    """
    spans = []
    position = 0
    for token in tokens:
        while not text.startswith(token, position):
            if position >= len(text) or not text[position].isspace():
                return None
            position += 1
        spans.append((position, position + len(token)))
        position += len(token)
    return spans


#: Makes the error about a token (1-based) from a description of the fault.
Fault = Callable[[int, str], RecordError]


def parse_head(text: str, token: int, num_tokens: int, fault: Fault) -> int:
    """The head of a token as a number: 0 for the root, else the 1-based number of another token.

    Raises:
        RecordError: made by `fault`, if it is missing, no number, out of range or the token itself.
    """
    if text in ("", "_"):
        raise fault(token, f"token {token} has no head")
    if not (text.isascii() and text.isdigit()):
        raise fault(token, f"token {token} has head '{text}', which is not a number")
    digits = text.lstrip("0") or "0"
    # By length first: Python refuses to read a number of thousands of digits.
    if len(digits) > len(str(num_tokens)) or int(digits) > num_tokens:
        count = f"{num_tokens} token" + "s" * (num_tokens != 1)
        raise fault(
            token, f"token {token} has head {shortened(digits)}, but the sentence has {count}"
        )
    head = int(digits)
    if head == token:
        raise fault(token, f"token {token} is its own head")
    return head


def find_dependents(heads: Sequence[int], fault: Fault) -> tuple[int, list[list[int]]]:
    """The root and the dependents of every word, in word order.

    Args:
        heads: the 1-based number of each word's head, 0 for the root.
        fault: makes the error about a token.

    Returns:
        The 0-based number of the root, and for each word the 0-based numbers of its dependents.

    Raises:
        RecordError: made by `fault`, if there is no root, a second one, or a cycle.
    """
    dependents: list[list[int]] = [[] for _ in heads]
    roots = [word for word, head in enumerate(heads) if head == 0]
    if not roots:
        raise fault(1, "no token has head 0, so the sentence has no root")
    if len(roots) > 1:
        first, second = roots[0] + 1, roots[1] + 1
        raise fault(
            second, f"tokens {first} and {second} both have head 0, but a tree has one root"
        )
    for word, head in enumerate(heads):
        if head:
            dependents[head - 1].append(word)
    _refuse_cycle(heads, fault)
    return roots[0], dependents


def _refuse_cycle(heads: Sequence[int], fault: Fault) -> None:
    """Walks from every word towards the root, up to words of an earlier walk."""
    walk_of = [0] * (len(heads) + 1)
    for start in range(1, len(heads) + 1):
        token = start
        while token and not walk_of[token]:
            walk_of[token] = start
            token = heads[token - 1]
        if token and walk_of[token] == start:
            cycle = [token]
            while heads[cycle[-1] - 1] != token:
                cycle.append(heads[cycle[-1] - 1])
            path = " -> ".join(str(member) for member in [*cycle, token])
            raise fault(token, f"the heads of tokens {path} form a cycle")


# Nine digits are enough for any sentence; Python cannot read numbers of thousands of digits.
_WORD = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_EMPTY = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")


class Token(NamedTuple):
    """One line of a sentence: its number in the file and the ten columns."""

    line: int
    id: str
    form: str
    lemma: str
    upos: str
    xpos: str
    feats: str
    head: str
    deprel: str
    deps: str
    misc: str


#: The names of the ten columns.
COLUMNS = Token._fields[1:]


class MultiwordToken(NamedTuple):
    """A stretch of text that is several words, such as French `du` for `de le`."""

    first: int  # number of its first word, from 1
    last: int
    form: str
    line: int  # its line in the file


@dataclass
class Sentence:
    """The lines of one sentence by their kind, each in order."""

    words: list[Token] = field(default_factory=list)
    multiword: list[MultiwordToken] = field(default_factory=list)
    empty: list[Token] = field(default_factory=list)
    text: str | None = None  # from the comment `# text = ...`

    def surface(self) -> list[tuple[str, int]]:
        """The forms in the text, each with the number of its words."""
        spans = {token.first: token for token in self.multiword}
        surface = []
        number = 1
        while number <= len(self.words):
            span = spans.get(number)
            form = span.form if span else self.words[number - 1].form
            count = span.last - span.first + 1 if span else 1
            surface.append((form, count))
            number += count
        return surface


def read_sentence(lines: Sequence[str], first_line: int) -> Sentence:
    """Reads comments and token lines.

    Args:
        lines: the lines of the sentence.
        first_line: the 1-based number of the first of them in the file.

    Raises:
        RecordError: with its line, if a line has not ten columns or its ID is out of order.
    """
    sentence = Sentence()
    for number, line in enumerate(lines, first_line):
        if not line.startswith("#"):
            _add(sentence, _split(line, number))
        elif line[1:].lstrip().startswith("text ="):
            sentence.text = line.split("=", 1)[1].strip(" ")
    if not sentence.words:
        raise RecordError("the sentence has no words", line=first_line)
    for token in sentence.multiword:
        if token.last > len(sentence.words):
            fault = f"multiword token {token.first}-{token.last} ends after the last word"
            raise RecordError(fault, "Correct the ID column.", line=token.line)
    return sentence


def _split(line: str, number: int) -> Token:
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise RecordError(
            f"the line has {len(cells)} column" + "s" * (len(cells) != 1) + " between tabs, but "
            f"CoNLL-U has {len(COLUMNS)}",
            line=number,
        )
    if "" in cells:
        name = COLUMNS[cells.index("")].upper()
        raise RecordError(f"column {name} is empty", "Write _ for no value.", line=number)
    return Token(number, *cells)


def _add(sentence: Sentence, token: Token) -> None:
    count = len(sentence.words)
    if _WORD.fullmatch(token.id):
        if token.id != str(count + 1):
            raise _out_of_order(token, f"{count + 1} comes next")
        sentence.words.append(token)
    elif match := _RANGE.fullmatch(token.id):
        first, last = int(match[1]), int(match[2])
        covered = sentence.multiword[-1].last if sentence.multiword else 0
        if first != count + 1 or last < first or first <= covered:
            raise _out_of_order(token, f"a multiword token that begins with {count + 1} may come")
        sentence.multiword.append(MultiwordToken(first, last, token.form, token.line))
    elif match := _EMPTY.fullmatch(token.id):
        place, _, number = sentence.empty[-1].id.partition(".") if sentence.empty else ("", "", "")
        expected = f"{count}.{int(number) + 1 if place == str(count) else 1}"
        if token.id != expected:
            raise _out_of_order(token, f"an empty node {expected} may come")
        sentence.empty.append(token)
    else:
        raise RecordError(
            f"token id '{token.id}' is neither a number, a range nor an empty node",
            "Correct the ID column.",
            line=token.line,
        )


def _out_of_order(token: Token, expected: str) -> RecordError:
    return RecordError(
        f"token id {token.id} is out of order: {expected}",
        "Correct the ID column; a blank line ends a sentence.",
        line=token.line,
    )
