"""How does the accuracy of runs on list operations fall with the depth of the expressions?

python scripts/listops_depth.py FILE RUN [RUN ...]

FILE is in the published format, such as test_d20s.tsv.gz. The depth is the number of lists inside
one another. Prints a table in Markdown.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import graphfold
from graphfold.datasets.files.text_files import read_lines

#: Deeper expressions are counted together.
DEEPEST = 12


def depth_of(expression: str) -> int:
    """The number of lists inside one another."""
    depth = deepest = 0
    for token in expression.split():
        depth += token.startswith("[") - (token == "]")
        deepest = max(deepest, depth)
    return deepest


def shares(lines: list[str], run: Path) -> dict[int, list[bool]]:
    """depth -> which of its expressions a run gets right."""
    found = defaultdict(list)
    for line, answer in zip(lines, graphfold.load(run).predict(lines), strict=True):
        digit, expression = line.split("\t")
        depth = min(depth_of(expression), DEEPEST)
        found[depth].append(str(answer["prediction"]) == digit)
    return found


def main(file: str, *runs: str) -> None:
    lines = [line for _, line in read_lines(Path(file))]
    tables = [shares(lines, Path(run)) for run in runs]
    print("| depth | expressions |", " | ".join(Path(run).name for run in runs), "|")
    print("|---|---|" + "---|" * len(runs))
    for depth in sorted(tables[0]):
        right = [f"{100 * sum(t[depth]) / len(t[depth]):.1f}" for t in tables]
        name = f"{depth} or more" if depth == DEEPEST else str(depth)
        print(f"| {name} | {len(tables[0][depth])} |", " | ".join(right), "|")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
