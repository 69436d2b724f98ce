"""How many small faults in graphfold do the tests notice?

A mutant is the package with one small fault: an operator turned, a constant changed, a condition
negated, or a statement dropped, at a place that the seed chooses. A mutant is killed if the tests
fail, or need longer than `--limit` seconds. They run in a copy of the repository, until one fails:
first the test files that name the mutant's module, then its folder's, then all that `--tests`
names. All take half an hour for a mutant that lives; with `--near` they are left out.

    python scripts/mutants.py /tmp/mutants --seed 1 --count 40 --near

Mutants that no test can tell from the code (a comment's worth of a change, a faster path that gives
the same) are among the survivors, so the figure is compared with that of another version at the
same seed and count. FOLDER/mutants.jsonl has a line for each: place, change, end (with the test
that failed: it should pass without the mutant), seconds; mutants that are in it already are not run
again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Operator -> the one that takes its place.
TURNED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    path: str  # from the root of the repository
    line: int
    before: str
    after: str


def mutants_of(path: Path) -> Iterator[tuple[Mutant, str]]:
    """Every mutant of a file, with the whole text that it has then."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    left_out = {id(part) for node in ast.walk(tree) for part in without_effect(node)}
    for node in ast.walk(tree):
        changed = None if id(node) in left_out else change_of(node)
        if changed is None:
            continue
        start, end = (
            offset(lines, node.lineno, node.col_offset),
            offset(lines, node.end_lineno or node.lineno, node.end_col_offset or 0),
        )
        place = path.relative_to(ROOT).as_posix()
        mutant = Mutant(place, node.lineno, text[start:end], changed)
        yield mutant, text[:start] + changed + text[end:]


def change_of(node: ast.AST) -> str | None:
    """The text of a node with a fault; None for nodes that get none."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in TURNED:
        turned = ast.copy_location(type(node)(**vars(node)), node)
        turned.op = TURNED[type(node.op)]()  # type: ignore[assignment]
        return f"({ast.unparse(turned)})"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        first: ast.cmpop = TURNED[type(node.ops[0])]()  # type: ignore[assignment]
        return f"({ast.unparse(ast.Compare(node.left, [first, *node.ops[1:]], node.comparators))})"
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return str(not node.value)
        if isinstance(node.value, int | float):
            return repr(node.value + 1)
    if isinstance(node, ast.IfExp):
        return (
            f"({ast.unparse(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))})"
        )
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call or isinstance(node, ast.AugAssign | ast.Continue | ast.Raise):
        return "pass"
    return None


def without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in type hints, and those in strings with values: Python 3.11 mistakes where."""
    hints = [getattr(node, name, None) for name in ("annotation", "returns")]
    parts = [node] if isinstance(node, ast.JoinedStr) else [hint for hint in hints if hint]
    yield from (below for part in parts for below in ast.walk(part))


def offset(lines: list[str], line: int, column: int) -> int:
    """The position in the text of a line and a column in bytes, as ast counts them."""
    own = lines[line - 1].encode()[:column].decode()
    return sum(map(len, lines[: line - 1])) + len(own)


def choose(seed: int, count: int) -> list[tuple[Mutant, str]]:
    """Mutants drawn at random: each line of code of the package is as likely as any other."""
    found = [
        pair for path in sorted((ROOT / "graphfold").rglob("*.py")) for pair in mutants_of(path)
    ]
    by_line: dict[tuple[str, int], list[tuple[Mutant, str]]] = {}
    for pair in found:
        by_line.setdefault((pair[0].path, pair[0].line), []).append(pair)
    draw = random.Random(seed)
    places = draw.sample(sorted(by_line), min(count, len(by_line)))
    return [draw.choice(by_line[place]) for place in places]


def tests_of(mutant: Mutant, tests: list[str], is_near: bool) -> list[list[str]]:
    """The rounds of tests: files that name the module or have its name, its folder's, all.

    Args:
        mutant: what they are for.
        tests: all tests.
        is_near: whether to leave all tests out.
    """
    root = ROOT / "tests"
    module = ".".join(Path(mutant.path).with_suffix("").parts).removesuffix(".__init__")
    package, _, stem = module.rpartition(".")
    name = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import .*\b{stem}\b")
    files = sorted(root.rglob("test_*.py"))
    naming = [
        path
        for path in files
        if path.stem == f"test_{stem}" or name.search(path.read_text(encoding="utf-8"))
    ]
    own = root / Path(mutant.path).parent.relative_to("graphfold")
    while not own.is_dir():
        own = own.parent
    near = [path for path in files if own in path.parents and path not in naming]
    if own == root:
        near = []
    rounds = [[str(path.relative_to(ROOT)) for path in part] for part in (naming, near)]
    return [part for part in (*rounds, [] if is_near else tests) if part]


def run(
    mutant: Mutant,
    text: str,
    tests: list[str],
    workers: int,
    is_near: bool = False,
    limit: float | None = None,
) -> tuple[str, str]:
    """The end of a mutant in a copy of the repository: killed or survived, and what failed."""
    copy = Path(os.environ.get("TMPDIR", "/tmp")) / f"mutant-{os.getpid()}"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "demo", "runs"))
    try:
        (copy / mutant.path).write_text(text, encoding="utf-8")
        for chosen in tests_of(mutant, tests, is_near):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", str(workers)]
            command += [*(["--dist", "worksteal"] if workers else []), *chosen]
            environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
            try:
                done = subprocess.run(
                    command,
                    cwd=copy,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:  # a loop that does not end
                return "killed", "time"
            if done.returncode not in (0, 5):  # 5: no test is there
                failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE)
                return "killed", failed[1] if failed else done.stdout[-300:]
        return "survived", ""
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def main() -> int:
    """Runs the mutants of a seed and prints how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tests", nargs="+", default=["tests"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--near", action="store_true", help="run the nearest tests alone")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for a round of tests")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    log = args.folder / "mutants.jsonl"
    ends = [json.loads(line) for line in log.open()] if log.is_file() else []
    known = {(end["path"], end["line"], end["after"]) for end in ends}
    for mutant, text in choose(args.seed, args.count):
        if (mutant.path, mutant.line, mutant.after) in known:
            continue
        begin = time.monotonic()
        end, by = run(mutant, text, args.tests, args.workers, args.near, args.limit)
        seconds = round(time.monotonic() - begin)
        ends.append({**asdict(mutant), "end": end, "by": by, "seconds": seconds})
        with log.open("a") as file:
            file.write(json.dumps(ends[-1]) + "\n")
        print(f"{end}: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}", flush=True)
    killed = sum(end["end"] == "killed" for end in ends)
    print(f"{killed} of {len(ends)} mutants were killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
