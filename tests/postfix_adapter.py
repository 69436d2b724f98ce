"""An adapter for tests: arithmetic in postfix notation, one expression per line.

`1 2 + 30 *` is (1 + 2) * 30. A line `? 1 2 +` is not asked for; any other fault is an error.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.errors import DataError, LeftOut, RecordError

ACTIONS = {"+": lambda a, b: a + b, "*": lambda a, b: a * b}


class PostfixAdapter(Adapter):
    """Leaves are numbers, inner nodes operators; numbers in a row are joined by `next`."""

    def __init__(self, base: int = 10, targets: list[str] | None = None) -> None:
        self.base = base
        self.schema = Schema(
            types=(
                NodeType("number", 0, (Column("form", "string"), Column("size"))),
                NodeType("operator", 2, (Column("form", "string"),)),
            ),
            inputs=EdgeType("inputs", (Column("side", "string"),)),
            relations=(EdgeType("next", (Column("even", "bool"), Column("vector", shape=(3,)))),),
            node_targets=(Column("parity", "int64", size=2),),
            graph_features=(Column("text", "string"),),
            graph_targets=(
                Column("value", "float32", unit="apples"),
                Column("digits", "int64", size=4),
            ),
        )

    def records(self, path: Path) -> Iterator[Record]:
        if not path.is_file():
            raise DataError(f"{path}: is no file of expressions. Correct the path.")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield Record(number, line)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        text = record.content
        if text.startswith("?"):
            raise LeftOut("the value is not measured", "Fill the value in.")
        stack: list[tuple[int, int]] = []
        leaves = []
        for word in text.split():
            if word in ACTIONS:
                if len(stack) < 2:
                    raise RecordError(f"'{word}' has fewer than two operands")
                (left, a), (right, b) = stack[-2:]
                node = graph.node("operator", form=word)
                graph.inputs(node, [left, right], side=["left", None])
                stack[-2:] = [(node, ACTIONS[word](a, b))]
            else:
                if not word.isdigit():
                    raise RecordError(f"'{word}' is no number")
                value = int(word, self.base)
                node = graph.node("number", form=word, size=float(value), parity=value % 2)
                leaves.append(node)
                stack.append((node, value))
        if len(stack) != 1:
            raise RecordError(f"{len(stack)} values are left over")
        even = [node % 2 == 0 for node in leaves[:-1]]
        vectors = [[float(node)] * 3 for node in leaves[:-1]]
        graph.edges("next", leaves[:-1], leaves[1:], even=even, vector=vectors)
        root, value = stack[0]
        graph.output(root)
        target = None if value > 1000 else float(value)
        graph.finish(record.line, text=text, value=target, digits=min(len(str(value)), 4) - 1)


#: The adapter by its dotted path, as a config would name it.
NAME = "postfix_adapter.PostfixAdapter"


def random_expressions(count: int, seed: int = 0) -> list[str]:
    """`count` expressions; most are different."""
    rng = random.Random(seed)
    return [_expression(rng) for _ in range(count)]


def write_expressions(path: Path, lines: list[str]) -> Path:
    """Writes a file for the adapter; returns its path."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _expression(rng: random.Random) -> str:
    words = [str(rng.randrange(100))]
    for _ in range(rng.randrange(6)):
        words += [str(rng.randrange(100)), rng.choice("+*")]
    return " ".join(words)
