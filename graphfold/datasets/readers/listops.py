"""ListOps: nested list operations with a digit as the answer; adapter and random generator."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.text_files import at_least_one, scan_lines
from graphfold.errors import ConfigError, RecordError, did_you_mean
from graphfold.files import write_text

#: The published sets are 90,000 and 10,000 examples of one pool of different expressions.
PUBLISHED_POOL = 100_000

#: Draws without a new expression after which the generator stops.
_PATIENCE = 100_000


class ListOpsExample(NamedTuple):
    """One line of a ListOps file."""

    answer: int
    expression: str


@dataclass(frozen=True)
class ListOpsGenerator:
    """Draws expressions as the published sets were drawn.

    Source: Nangia & Bowman (2018), https://arxiv.org/abs/1804.06028, section 2, and the authors'
    script python/spinn/data/listops/make_data.py in https://github.com/nyu-mll/spinn. A place in an
    expression is an operation with probability 0.25, else a digit; operators, digits and the number
    of arguments (2 to 5) are uniform; at depth 20 there are only digits. Drawing goes on until
    there are enough *different* expressions, which makes short ones rarer than chance would: the
    size of the pool is part of the distribution. 100,000 reproduces the lengths of test_d20s.

    Args:
        operator_probability: how often a place holds an operation.
        max_arguments: the most arguments of an operation; the fewest are 2.
        max_depth: the depth of digits alone, one more than the most nested operations.
        max_length: longer expressions (in tokens, brackets not counted) are drawn again; None for
            any length, as published.
        pool: the least number of different expressions that are drawn; `examples` returns a random
            part of them.

    Raises:
        ConfigError: if an option is out of its range, or expressions would have no end.
    """

    operator_probability: float = 0.25
    max_arguments: int = 5
    max_depth: int = 20
    max_length: int | None = None
    pool: int = PUBLISHED_POOL

    def __post_init__(self) -> None:
        if not 0 <= self.operator_probability < 1:
            raise ConfigError(
                f"operator_probability is {self.operator_probability}. Give 0 or more, less than 1."
            )
        for name, least in {"max_arguments": 2, "max_depth": 1, "max_length": 1, "pool": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}. Give {least} or more.")
        if self.max_length is None and self._mean_length() > 10_000:
            raise ConfigError(
                f"expressions would have {self._mean_length():.0f} tokens on average. Lower "
                "operator_probability, max_arguments or max_depth, or set max_length."
            )

    def draw(self, rng: random.Random) -> ListOpsExample | None:
        """One expression; None if it grew longer than `max_length`."""
        pieces: list[str] = []
        lists: list[_OpenList] = []
        length = 0
        while True:
            if len(lists) + 1 < self.max_depth and rng.random() < self.operator_probability:
                size = 2 + int(rng.random() * (self.max_arguments - 1))
                operator = OPERATORS[int(rng.random() * len(OPERATORS))]
                lists.append(_OpenList(operator, size, []))
                pieces.append("( " * (size + 1) + operator)
                length += 2
                continue
            value = int(rng.random() * 10)
            pieces.append(str(value))
            length += 1
            if self.max_length is not None and length > self.max_length:
                return None
            while lists:
                operator, size, values = lists[-1]
                values.append(value)
                pieces.append(")")
                if len(values) < size:
                    break
                value = apply_operator(operator, values)
                pieces.append(f"{END} )")
                lists.pop()
            else:
                return ListOpsExample(value, " ".join(pieces))

    def examples(
        self, count: int, seed: int, without: Collection[str] = ()
    ) -> list[ListOpsExample]:
        """Different expressions with their answers, in random order.

        Args:
            count: how many.
            seed: the same seed gives the same expressions.
            without: expressions to leave out.

        Raises:
            ConfigError: if the options allow too few different expressions.
        """
        rng = random.Random(seed)
        size = max(count + len(without), self.pool)
        answers: dict[str, int] = {}
        failures = 0  # in a row
        while len(answers) < size and failures < _PATIENCE:
            example = self.draw(rng)
            failures += 1
            if example is not None and example.expression not in answers:
                answers[example.expression] = example.answer
                failures = 0
        if len(answers) < count + len(without):
            raise ConfigError(
                f"these options allow only about {len(answers)} different expressions, but {count} "
                "are wanted. Ask for fewer, or raise max_depth or max_arguments."
            )
        examples = [ListOpsExample(answer, text) for text, answer in answers.items()]
        rng.shuffle(examples)
        return [example for example in examples if example.expression not in without][:count]

    def _mean_length(self) -> float:
        """The expected number of tokens, brackets not counted."""
        mean_arguments = (2 + self.max_arguments) / 2
        length = 1.0
        for _ in range(self.max_depth - 1):
            p = self.operator_probability
            length = 1 - p + p * (2 + mean_arguments * length)
        return length


class _OpenList(NamedTuple):
    operator: str
    size: int  # how many arguments it takes
    values: list[int]  # of those drawn so far


def write_listops(
    folder: Path,
    sizes: Mapping[str, int],
    seed: int,
    generator: ListOpsGenerator | None = None,
    without: Collection[str] = (),
) -> dict[str, Path]:
    """Writes splits in which no expression occurs twice, as `SPLIT.tsv` in the published format.

    Args:
        folder: where to; made if need be.
        sizes: the number of examples of each split, such as `{"train": 90_000, "test": 10_000}`.
        seed: the same seed gives the same files.
        generator: how to draw; the published distribution by default.
        without: expressions to leave out.

    Returns:
        The file of each split. Each is written whole or not at all.

    Raises:
        ConfigError: if there are not enough different expressions.
    """
    examples = (generator or ListOpsGenerator()).examples(sum(sizes.values()), seed, without)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    begin = 0
    for split, size in sizes.items():
        paths[split] = folder / f"{split}.tsv"
        part = examples[begin : begin + size]
        lines = [f"{example.answer}\t{example.expression}\n" for example in part]
        write_text(paths[split], "".join(lines))
        begin += size
    return paths


#: The operators of the files: minimum, maximum, median, sum modulo 10.
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
END = "]"
DIGITS = tuple("0123456789")

Span = tuple[int, int]

#: The meaning of a part of a bracket: a digit, an operator or `]`, an operator with its values.
Meaning = int | str | tuple[str, list[int]]

_MEANINGS: Mapping[str, int | str] = {
    **{digit: int(digit) for digit in DIGITS},
    **{token: token for token in (*OPERATORS, END)},
}
_BRACKETS = ("(", ")", "")


def apply_operator(operator: str, values: Sequence[int]) -> int:
    """The answer of one list; a median between two digits is rounded down."""
    if operator == "[MIN":
        return min(values)
    if operator == "[MAX":
        return max(values)
    if operator == "[SM":
        return sum(values) % 10
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


class ListOpsAdapter(Adapter):
    """Reads the published files of ListOps; one record per line.

    Format (Nangia & Bowman 2018, https://arxiv.org/abs/1804.06028): the answer, a tab, and the
    expression in binary brackets between blanks. `[MAX 2 4 ]` is `( ( ( [MAX 2 ) 4 ) ] )`.

    The graph target is `answer`, a digit, the graph feature `text` the expression, and spans are
    its characters. The nodes are, by the option `nodes`:

    - brackets: the type `token` (no inputs; the string `form`: an operator, a digit or `]`) and the
      type `pair` (the two parts of a bracket). Nodes are the tokens in order, then the pairs, inner
      ones first; the output is the root.
    - lists: the type `digit` (no inputs; the string `form`) and the type `list` (its inputs are its
      arguments in order; the string `operator`). Nodes are the digits in order, then the lists,
      inner ones first; the output is the root.
    - tokens: the type `token` alone; each token reads the one before, and the output is the last.
      The expression is a plain sequence.

    Args:
        check_answers: work out every expression; an answer that is wrong is a fault of its line.
        nodes: brackets, lists or tokens.

    Raises:
        ConfigError: if `nodes` is something else.
    """

    expands_folders = True

    def __init__(
        self, check_answers: bool = True, nodes: Literal["brackets", "lists", "tokens"] = "brackets"
    ) -> None:
        if nodes not in _LAYOUTS:
            raise ConfigError(
                f"nodes is '{nodes}'.{did_you_mean(nodes, _LAYOUTS)} Use one of "
                f"{', '.join(_LAYOUTS)}."
            )
        self.check_answers = check_answers
        types, self._write = _LAYOUTS[nodes]
        self.schema = Schema(
            types=types,
            graph_features=(Column("text", "string"),),
            graph_targets=(Column("answer", "int64", size=10),),
        )

    def records(self, path: Path) -> Iterator[Record]:
        """One record per line that is not blank, `content` being the line."""
        lines = (Record(*line) for line in scan_lines(path) if line.text.strip(" \t"))
        yield from at_least_one(lines, path, "expressions")

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one expression; see `Adapter.parse`."""
        answer, text = _split(record.content)
        expression = read_expression(text, first_column=len(answer) + 2)
        if self.check_answers and int(answer) != expression.value:
            raise RecordError(
                f"the answer is {answer}, but the expression gives {expression.value}",
                "Correct the answer, or set check_answers=false.",
            )
        self._write(expression, text, graph)
        graph.output(graph.num_nodes - 1)
        graph.finish(line=record.line, text=text, answer=int(answer))


class Expression(NamedTuple):
    """One expression as a binary tree: tokens first, then pairs, inner ones first."""

    num_tokens: int
    pairs: list[tuple[int, int]]  # the two parts of each bracket
    spans: list[Span]  # characters of every node
    value: int

    def forms(self, text: str) -> list[str]:
        """The texts of the tokens."""
        return [text[begin:end] for begin, end in self.spans[: self.num_tokens]]


def read_expression(text: str, first_column: int = 1) -> Expression:
    """Reads and works out an expression, in linear time and without recursion.

    Args:
        text: the expression.
        first_column: the 1-based column of its first character, for messages.

    Raises:
        RecordError: with the column, if it is not one finished list operation or digit.
    """
    pieces = text.split(" ")
    num_tokens = sum(piece not in _BRACKETS for piece in pieces)
    tokens: list[Span] = []
    pairs: list[tuple[int, int]] = []
    pair_spans: list[Span] = []
    stack: list[_Open] = [_Open(0)]  # the whole text, then the brackets that are open
    end = -1
    for piece in pieces:
        begin = end + 1
        end = begin + len(piece)
        if piece == "(":
            stack.append(_Open(begin))
        elif piece == ")":
            bracket = stack.pop()
            if not stack:
                raise RecordError(
                    f"closing bracket at column {begin + first_column} closes nothing"
                )
            stack[-1].meanings.append(_combine(bracket, first_column))
            stack[-1].nodes.append(num_tokens + len(pairs))
            pairs.append((bracket.nodes[0], bracket.nodes[1]))
            pair_spans.append((bracket.begin, end))
        elif piece:
            if piece not in _MEANINGS:
                raise RecordError(
                    f"unknown token '{piece}' at column {begin + first_column}; ListOps has "
                    f"{', '.join(OPERATORS)}, {END}, brackets between blanks and the digits"
                )
            stack[-1].meanings.append(_MEANINGS[piece])
            stack[-1].nodes.append(len(tokens))
            tokens.append((begin, end))
    if len(stack) > 1:
        column = stack[-1].begin + first_column
        raise RecordError(f"bracket opened at column {column} is never closed")
    match stack[0].meanings:
        case [int(value)]:
            return Expression(num_tokens, pairs, tokens + pair_spans, value)
    raise RecordError("the expression is not one digit or one bracket that ends with ]")


def _write_brackets(expression: Expression, text: str, graph: GraphBuilder) -> None:
    count, spans = expression.num_tokens, expression.spans
    graph.nodes("token", count, spans[:count], form=expression.forms(text))
    graph.nodes("pair", len(expression.pairs), spans[count:], expression.pairs)


def _write_tokens(expression: Expression, text: str, graph: GraphBuilder) -> None:
    count = expression.num_tokens
    inputs = [[token - 1] if token else [] for token in range(count)]
    graph.nodes("token", count, expression.spans[:count], inputs, form=expression.forms(text))


def _write_lists(expression: Expression, text: str, graph: GraphBuilder) -> None:
    count, forms = expression.num_tokens, expression.forms(text)
    digits = [token for token, form in enumerate(forms) if form in DIGITS]
    spans = [expression.spans[token] for token in digits]
    graph.nodes("digit", len(digits), spans, form=[forms[token] for token in digits])
    # A list is the bracket whose second part is its `]`.
    ends = {pair[1]: expression.spans[count + k] for k, pair in enumerate(expression.pairs)}
    unread = iter(range(len(digits)))
    lists: list[tuple[str, list[int]]] = []  # those that are open: operator, arguments
    for token, form in enumerate(forms):
        if form in OPERATORS:
            lists.append((form, []))
            continue
        if form == END:
            operator, inputs = lists.pop()
            node = graph.node("list", inputs, ends[token], operator=operator)
        else:
            node = next(unread)
        if lists:
            lists[-1][1].append(node)


_FORM = (Column("form", "string"),)

#: The option `nodes` -> the types of the nodes, and the function that writes them.
_LAYOUTS: Mapping[
    str, tuple[tuple[NodeType, ...], Callable[[Expression, str, GraphBuilder], None]]
] = {
    "brackets": (
        (NodeType("token", arity=0, features=_FORM), NodeType("pair", arity=2)),
        _write_brackets,
    ),
    "lists": (
        (
            NodeType("digit", arity=0, features=_FORM),
            NodeType("list", features=(Column("operator", "string"),)),
        ),
        _write_lists,
    ),
    "tokens": ((NodeType("token", features=_FORM),), _write_tokens),
}


class _Open:
    """An open bracket: its place, and its parts so far."""

    __slots__ = ("begin", "meanings", "nodes")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.nodes: list[int] = []
        self.meanings: list[Meaning] = []


def _split(line: str) -> tuple[str, str]:
    """The answer and the expression of a line."""
    answer, *rest = line.split("\t")
    if len(rest) != 1:
        count = len(rest) or "no"
        raise RecordError(
            f"the line has {count} tabs, but it needs one between answer and expression"
        )
    if answer not in DIGITS:
        raise RecordError(f"the answer '{answer}' is not a digit")
    if not rest[0].strip(" "):
        raise RecordError("the expression is empty")
    return answer, rest[0]


def _combine(bracket: _Open, first_column: int) -> Meaning:
    """The meaning of a closed bracket: an operator with its values so far, or an answer."""
    count = len(bracket.meanings)
    place = f"bracket opened at column {bracket.begin + first_column}"
    if count != 2:
        parts = f"{count} part" + "s" * (count != 1)
        raise RecordError(f"{place} holds {parts}, but needs two")
    first, second = bracket.meanings
    if isinstance(second, int):
        if isinstance(first, tuple):
            first[1].append(second)
            return first
        if first in OPERATORS:
            return str(first), [second]
    elif second == END and isinstance(first, tuple):
        return apply_operator(*first)
    raise RecordError(
        f"{place} holds neither an operator and a value, nor such a list and a value, nor such a "
        "list and ]"
    )
