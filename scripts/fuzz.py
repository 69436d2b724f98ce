"""Is every end of a command an end in words, whatever it is given?

Commands, configs, files, run folders, searches and checkpoints are made valid, then spoilt, and
given to `graphfold` in a process of its own:

    python scripts/fuzz.py /tmp/fuzz --seed 1 --minutes 60

Every end must be the exit code 0, 1 or 2; other than 0 with a message; never a traceback, a crash
or a hang, nothing imported that a stranger's file names, no temporary file left behind and no input
changed. What is no such end is a fault: its case is kept in FOLDER/faults, FOLDER/cases.jsonl has
every case, and the last lines count them. `--case N` runs one case of a seed again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: The module that a stranger's file names; it lies where it could be imported.
STRANGER = "fuzz_stranger"

#: A command is interrupted after so many seconds, which is an end in words, too...
SECONDS = 40.0

#: ... unless it goes on for so many more.
GRACE = 40.0

#: A worker serves so many commands before another takes its place.
COMMANDS_PER_WORKER = 150

#: Address space of a worker: what asks for more is an error, not the end of the machine.
MEMORY = 12 << 30

#: Values that no key expects, and some that many keys take.
VALUES = (
    *("null", "true", "false", "0", "1", "-1", "2", "3", "0.5", "1e300", "-1e-300", "nan", "inf"),
    *("1000000000", "9223372036854775808", "x", "''", "auto", "none", "[auto]", "[]", "{}", "[[]]"),
    *("{a: 1}", "[1,2]", "[x,y]", "a.b", f"{STRANGER}.Thing", f"[{STRANGER}.Thing]", "C", "/", "."),
    *(f"{{_target_: {STRANGER}.Thing}}", "{_target_: graphfold.layers.GCNCell}", "é", "'a b'"),
    *(
        "/dev/null",
        "nowhere",
        "${seed}",
        "${oc.env:HOME}",
        "???",
        "1:2",
        "rmse",
        "random",
        "[rmse]",
    ),
)

#: The same for JSON and YAML.
PLAIN: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, 1e300, float("nan"), float("inf"), 10**9, 2**63, 2**70),
    *("", "x", "auto", "é", "\x00", "C", [], {}, [[]], {"a": 1}, [1, 2], ["x"], "a.b", "/", "???"),
    *(f"{STRANGER}.Thing", [f"{STRANGER}.Thing"], {"_target_": f"{STRANGER}.Thing"}),
    *({"_target_": "subprocess.Popen", "args": ["touch", "stranger-was-here"]}, "${seed}"),
)

#: Bytes that files seldom have.
BYTES = (b"\x00", b"\xff\xfe", b"\n\n", b"\r", b'"', b"(", b")", b"[", b"{", b"\t", b",", b"1e999")

SMALL = ("logger=none", "trainer.max_epochs=1", "data.batch_size=8")

MOLECULES = ("C", "CC", "CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "CCCl", "c1ccncc1", "CCOC")


@dataclass(frozen=True)
class Base:
    """A run that is valid before it is spoilt.

    Args:
        name: of its folder.
        file: what it reads.
        overrides: what trains it.
    """

    name: str
    file: str
    overrides: tuple[str, ...]


BASES = (
    Base(
        "numbers",
        "molecules.csv",
        ("data=smiles", "data.target_columns=[c]", "model=fingerprint", "model.hidden_size=4"),
    ),
    Base(
        "network",
        "molecules.csv",
        ("data=smiles", "data.target_columns=[active]", "model=gcn", "model.hidden_size=4"),
    ),
    Base(
        "ensemble",
        "molecules.csv",
        (
            *("data=smiles", "data.target_columns=[c]", "model=dmpnn", "model.hidden_size=4"),
            "ensemble=2",
        ),
    ),
    Base(
        "trees",
        "trees.txt",
        ("data=brackets", "model=binary_tree_lstm", "model.hidden_size=4", "model.encoder.size=4"),
    ),
    Base(
        "words",
        "words.conllu",
        ("data=conllu", "model=child_sum_tree_lstm", "model.hidden_size=4"),
    ),
    Base(
        "table",
        "table.csv",
        (
            *("data=table", "data.records=brackets", "data.record_column=tree"),
            *("data.target_columns=[y]", "model.hidden_size=4"),
        ),
    ),
)


@dataclass
class Job:
    """One command, and where it runs."""

    argv: list[str]
    cwd: str


@dataclass
class End:
    """How a command ended: an exit code, or None with a reason."""

    code: int | None
    output: str = ""
    error: str = ""
    imported: bool = False
    reason: str = ""  # crash, hang, raised
    seconds: float = 0.0
    interrupted: bool = False


@dataclass
class Case:
    """A case: what was spoilt, the commands, and what came of them."""

    number: int
    kind: str
    argv: list[str]
    inputs: list[str] = field(default_factory=list)  # files and folders that must stay as they are
    note: str = ""


# The worker: serves commands until its input ends.


def work(main: str) -> None:
    """Runs commands in this process, one for each line of standard input."""
    module, _, name = main.partition(":")
    run: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    jobs = os.fdopen(os.dup(0), "r")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    answers.write("ready\n")
    answers.flush()
    while line := jobs.readline():
        answers.write(json.dumps(asdict(_run(run, Job(**json.loads(line))))) + "\n")
        answers.flush()


def _run(run: Callable[[list[str]], int], job: Job) -> End:
    """Runs one command whose output goes into files."""
    os.chdir(job.cwd)
    paths = [Path(job.cwd) / ".." / name for name in ("stdout", "stderr")]
    for number, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    end = End(None)
    try:
        end.code = run(job.argv)
    except KeyboardInterrupt:
        end.code, end.interrupted = 1, True
    except BaseException:
        end.reason = "raised"
        traceback.print_exc()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    end.output, end.error = (path.read_text(errors="replace")[-20_000:] for path in paths)
    end.imported = sys.modules.pop(STRANGER, None) is not None
    return end


class Worker:
    """A process that runs commands, and another when it has crashed or hangs.

    Args:
        site: a folder that it can import from, with the stranger's module.
        main: "module:function" of the command line.
        seconds: after which a command is interrupted.
        grace: after which it is killed then.
    """

    def __init__(
        self,
        site: Path,
        main: str = "graphfold.cli:main",
        seconds: float = SECONDS,
        grace: float = GRACE,
    ) -> None:
        self.site, self.main, self.seconds, self.grace = site, main, seconds, grace
        self.process: subprocess.Popen[str] | None = None
        self.served = 0

    def run(self, job: Job) -> End:
        """Runs a command; its end may be that of the worker."""
        begin = time.monotonic()
        if self.process is None or self.served >= COMMANDS_PER_WORKER:
            self.close()
            self._start()
        process = self.process
        assert process is not None
        assert process.stdin is not None
        self.served += 1
        process.stdin.write(json.dumps(asdict(job)) + "\n")
        process.stdin.flush()
        begin = time.monotonic()
        line, interrupted = self._answer(self.seconds), False
        if line is None:
            process.send_signal(signal.SIGINT)
            line, interrupted = self._answer(self.grace), True
        if line:
            end = End(**json.loads(line))
        else:
            hangs, status = line is None, self._end_after(line)
            end = End(None, reason="hang" if hangs else f"crash ({status})")
            for name in ("output", "error"):
                path = Path(job.cwd) / ".." / {"output": "stdout", "error": "stderr"}[name]
                if path.exists():  # else it was killed before it began
                    setattr(end, name, path.read_text(errors="replace")[-20_000:])
        end.seconds, end.interrupted = time.monotonic() - begin, interrupted or end.interrupted
        return end

    def close(self) -> None:
        """Ends the process."""
        if self.process is None or self.process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self._end()

    def _end_after(self, line: str | None) -> int:
        """The status of a process that has crashed, or hangs."""
        if line is not None and self.process is not None:
            self.process.wait()
        return self._end()

    def _end(self) -> int:
        """Kills the process if it is there still; returns its status."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        assert process.stdin is not None
        process.kill()
        status = process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        self.process = None
        return status

    def _start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{self.site}",
        }
        words = [sys.executable, __file__, "--worker", self.main]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment, text=True)
        self.served = 0
        if self._answer(300) is None:
            raise SystemExit("the worker does not start")

    def _answer(self, seconds: float) -> str | None:
        """A line of the worker; "" if it has ended, None if it is silent."""
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else None


# The judge.


def faults(case: Case, end: End, folder: Path, before: dict[str, str]) -> list[str]:
    """What is wrong with the end of a command.

    Args:
        case: what ran.
        end: how it ended.
        folder: the folder of the case; its `cwd` is where the command ran.
        before: path -> digest of what must not change.
    """
    found = [end.reason] if end.reason else []
    if not end.reason and end.code not in (0, 1, 2):
        found.append(f"exit code {end.code}")
    if "Traceback (most recent call last)" in end.error + end.output:
        found.append("traceback")
    if "Add --debug" in end.error:
        found.append("raw error")
    if end.code in (1, 2) and not end.error.strip():
        found.append("no message")
    if end.imported or (folder / "cwd" / "stranger-was-here").exists():
        found.append("stranger's code")
    left = [p.name for p in folder.rglob(".*.tmp")] + [p.name for p in folder.rglob(".lock")]
    if left:
        found.append(f"left behind: {', '.join(left[:3])}")
    changed = [path for path, digest in before.items() if digest_of(Path(path)) != digest]
    if changed:
        found.append(f"changed: {', '.join(Path(path).name for path in changed)}")
    return found


def digest_of(path: Path) -> str:
    """The digest of a file, or of all files in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        whole.update(str(file).encode())
        if file.is_file():
            whole.update(file.read_bytes())
    return whole.hexdigest()


# Valid inputs.


def write_inputs(folder: Path) -> None:
    """Small files of every format."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    rows = [
        f'"x,{n}",{MOLECULES[n % 10]},{rng.gauss(0, 1):.3f},{"" if n % 9 == 4 else n % 4},{n % 2}'
        for n in range(40)
    ]
    _write(folder / "molecules.csv", ["id,smiles,a b,c,active", *rows])
    words = ("a", "film", "is", "not", "good")

    def tree(depth: int) -> str:
        label = rng.randrange(5)
        if depth == 0:
            return f"({label} {rng.choice(words)})"
        return f"({label} {tree(depth - 1)} {tree(rng.randrange(depth))})"

    _write(folder / "trees.txt", [tree(3) for _ in range(30)])
    rows = [f"{tree(2)},{rng.gauss(0, 1):.3f}" for _ in range(30)]
    _write(folder / "table.csv", ["tree,y", *rows])
    sentence = "\n".join(
        f"{n}\t{word}\t{word}\t{tag}\t_\t_\t{n - 1}\t{'root' if n == 1 else 'dep'}\t_\t_"
        for n, (word, tag) in enumerate([("a", "DET"), ("film", "NOUN"), ("is", "AUX")], start=1)
    )
    _write(folder / "words.conllu", [f"# text = a film is\n{sentence}\n"] * 30)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def train_words(base: Base, files: Path) -> list[str]:
    """The command that trains a base."""
    return ["train", *base.overrides, f"data.path={files / base.file}", *SMALL]


def make_bases(folder: Path, worker: Worker) -> None:
    """Trains every base, unless that is done.

    Raises:
        SystemExit: if one of them fails.
    """
    write_inputs(folder / "files")
    cwd = folder / "bases" / "cwd"
    cwd.mkdir(parents=True, exist_ok=True)
    jobs = {base.name: train_words(base, folder / "files") for base in BASES}
    for name, words in jobs.items():
        target = folder / "bases" / name
        if not target.exists():
            end = worker.run(Job([*words, f"hydra.run.dir={target}"], str(cwd)))
            if end.code != 0:
                raise SystemExit(f"{name} cannot be trained: {end.error[-2000:]}{end.reason}")


# What is spoilt.


def spoilt_bytes(rng: random.Random, content: bytes) -> bytes:
    """Content with some bytes changed, cut out, put in or doubled."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice((1, 3, 50, 5000)))
        way = rng.randrange(6)
        if way == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif way == 1:
            del found[at:end]
        elif way == 2:
            found[at:at] = rng.choice(BYTES)
        elif way == 3:
            found[at:at] = found[at:end] * rng.choice((1, 2, 30))
        elif way == 4:
            del found[at:]
        else:
            found[at:end] = rng.randbytes(end - at)
    return bytes(found)


def spoilt_text(rng: random.Random, text: str) -> str:
    """Text some of whose words, or lines, are replaced, moved, or gone."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 2, 6))):
        at = rng.randrange(len(lines))
        way = rng.randrange(5)
        if way == 0:
            lines[at] = rng.choice((*VALUES, *map(str, PLAIN)))
        elif way == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif way == 2 and len(lines) > 1:
            del lines[at]
        else:
            mark = rng.choice((",", "\t", " ", "(", '"', ":"))
            parts = lines[at].split(mark)
            parts[rng.randrange(len(parts))] = rng.choice((*VALUES, "", *map(str, PLAIN)))
            lines[at] = mark.join(parts)
    return "\n".join(lines)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a nested one."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def spoil_nested(rng: random.Random, node: Any) -> str:
    """Changes a value, a key, or the number of values of a nested one in place; says where."""
    found = list(places(node))
    if not found:
        return "empty"
    path = rng.choice(found)
    for key in path[:-1]:
        node = node[key]
    key, way = path[-1], rng.randrange(8)
    name = ".".join(map(str, path))
    if way == 0:
        del node[key]
        return f"no {name}"
    if way == 1 and isinstance(node, dict):
        node[rng.choice(("x", "_target_", str(key) + "x"))] = node.pop(key)
        return f"{name} renamed"
    if way == 2 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = node[key] * rng.choice((-1, 2, 0.5, 1000))
        return f"{name} times"
    node[key] = rng.choice(PLAIN)
    return f"{name}={node[key]!r}"[:80]


def spoil_checkpoint(rng: random.Random, path: Path) -> str:
    """Changes a checkpoint, which stays a file of torch, or becomes none; says how."""
    import torch

    if rng.random() < 0.2:
        path.write_bytes(spoilt_bytes(rng, path.read_bytes()))
        return "bytes"
    content = torch.load(path, weights_only=True)
    texts = [name for name in ("config", "spec", "split", "packages") if name in content]
    way = rng.randrange(4)
    if way == 0:
        note = spoil_nested(rng, content)
    elif way == 1:
        note = _spoil_weight(rng, content["state_dict"])
    else:
        name = rng.choice(texts if way == 2 else ["config", "spec"])
        nested = json.loads(content[name])
        note = f"{name}: {spoil_nested(rng, nested)}"
        content[name] = json.dumps(nested)
    torch.save(content, path)
    return note


def _spoil_weight(rng: random.Random, state: dict[str, Any]) -> str:
    import torch

    name = rng.choice(sorted(state))
    weight = state[name]
    ways: dict[str, Callable[[], Any]] = {
        "nan": lambda: torch.full_like(weight, float("nan")) if weight.is_floating_point() else 1,
        "complex": lambda: weight.to(torch.complex64),
        "whole": lambda: weight.long(),
        "logical": lambda: weight.bool(),
        "half": lambda: weight.half(),
        "sparse": lambda: weight.to_sparse(),
        "flat": lambda: weight.flatten(),
        "wide": lambda: torch.cat([weight.flatten()] * 3),
        "expanded": lambda: torch.zeros(1).expand(10**9),
        "negative": lambda: -weight if weight.dtype is not torch.bool else weight,
        "huge": lambda: weight * 1e30 if weight.is_floating_point() else weight + 10**6,
        "number": lambda: 3,
        "none": lambda: None,
    }
    way = rng.choice(sorted(ways))
    state[name] = ways[way]()
    return f"{name} {way}"


# Cases by kind: each makes the files of a case and says which command runs.

Maker = Callable[[random.Random, Path, Path], Case]


def a_base(rng: random.Random) -> Base:
    """One of the bases."""
    return rng.choice(BASES)


def reading_commands(
    rng: random.Random, run: Path, data: Path, folder: Path
) -> tuple[list[str], list[str]]:
    """A command that reads a run folder, and what it must not change."""
    out = folder / "out"
    run_, data_ = str(run), str(data)
    extra = rng.choice(
        ([], [], ["--set", f"batch_size={rng.choice(VALUES)}"], ["--batch-size", "3"])
    )
    choices = [
        ["evaluate", run_, *extra],
        ["evaluate", run_, "--data", data_, *extra],
        ["evaluate", run_, "--split", "val", "--per-class", "--json", f"{out}.json"],
        ["predict", run_, data_, "--output", f"{out}.csv", *extra],
        ["predict", run_, data_, "--explain", "--output", f"{out}.csv"],
        ["draw", run_, data_, "--output", str(out)],
        ["predict", run_, data_, "--embeddings", "--output", f"{out}.{rng.choice(('csv', 'npy'))}"],
        ["verify", run_, "--examples", "2"],
        ["predict", run_, data_, data_, "--output", str(out), "--shard", f"1/{rng.choice('012')}"],
        ["predict", run_, str(data.parent), "--output", str(out), *extra],
        ["predict", run_, data_, "--format", "parquet", "--output", f"{out}.parquet"],
    ]
    return rng.choice(choices), [run_, data_]


def make_config(rng: random.Random, bases: Path, folder: Path) -> Case:
    """Overrides of training with values, or keys, that do not fit."""
    import yaml

    base = a_base(rng)
    words = train_words(base, bases.parent / "files")
    config = yaml.safe_load((bases / base.name / "config.yaml").read_text())
    keys = [".".join(map(str, path)) for path in places(config)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        key = rng.choice(
            (rng.choice(keys), rng.choice(("data", "model", "optimizer", "experiment")))
        )
        mark = rng.choice(("", "", "", "", "+", "++", "~"))
        words.append(mark + key + ("" if mark == "~" else f"={rng.choice(VALUES)}"))
    if rng.random() < 0.2:
        words.append(rng.choice(("-m", "--cfg", "--resolve", "hydra=x")))
    words.append(f"hydra.run.dir={folder / 'new'}")
    words.append(f"hydra.sweep.dir={folder / 'sweep'}")
    # What the user typed is trusted, so no module of a stranger is among the values.
    words = [word.replace(STRANGER, "nowhere") for word in words]
    return Case(0, "config", words, [str(bases.parent / "files")])


def make_command(rng: random.Random, bases: Path, folder: Path) -> Case:
    """Arguments left out, doubled, moved or replaced."""
    base = a_base(rng)
    run, data = bases / base.name, bases.parent / "files" / base.file
    words, _ = reading_commands(rng, run, data, folder)
    others = [
        ["list"],
        ["list", "--markdown"],
        ["check-adapter", "smiles", "--data", str(data), "--set", "target_columns=[c]"],
        ["check-adapter", "brackets", "--data", str(data)],
        ["verify", *base.overrides, f"data.path={data}", "--examples", "2"],
        ["bench", "page", str(data)],
        ["tune", *base.overrides, f"data.path={data}", "model.hidden_size=2,3", "tune.trials=1"],
    ]
    words = rng.choice((words, rng.choice(others)))
    options = (
        "--json",
        "--data",
        "--set",
        "--trust",
        "--batch-size",
        "--split",
        "--on-error",
        "--help",
    )
    options += (
        "--explain",
        "--format",
        "--output",
        "--target",
        "--metric",
        "--config-dir",
    )
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, way = rng.randrange(1, len(words) + 1), rng.randrange(5)
        if way == 0:
            del words[at : at + 1]
        elif way == 1:
            words.insert(at, words[rng.randrange(len(words))])
        elif way == 2:
            words[at : at + 1] = [rng.choice((*VALUES, str(folder), "-", "--", "-1"))]
        else:
            words.insert(at, rng.choice(options))
    if words[0] in ("train", "tune"):
        words += [*SMALL, f"hydra.run.dir={folder / 'new'}"]
    return Case(0, "command", words, [str(bases.parent / "files"), str(run)])


def make_file(rng: random.Random, bases: Path, folder: Path) -> Case:
    """A data file that is damaged."""
    base = a_base(rng)
    source = bases.parent / "files" / base.file
    data = folder / base.file
    if rng.random() < 0.5:
        data.write_bytes(spoilt_bytes(rng, source.read_bytes()))
    else:
        data.write_bytes(spoilt_text(rng, source.read_text()).encode(errors="replace"))
    words, _ = reading_commands(rng, bases / base.name, data, folder)
    if rng.random() < 0.4 or words[0] == "verify":
        words = [*train_words(base, folder), f"hydra.run.dir={folder / 'new'}"]
        words += rng.choice(([], ["data.on_error=skip"]))
    return Case(0, "file", words, [str(data), str(bases / base.name)])


def _copy_run(base: Base, bases: Path, folder: Path) -> Path:
    run = folder / "run"
    shutil.copytree(bases / base.name, run)
    other = rng_free_choice(base)
    shutil.copytree(bases / other, folder / "run2")
    return run


def rng_free_choice(base: Base) -> str:
    """The name of another base that reads the same file, or of this one."""
    return next((b.name for b in BASES if b.file == base.file and b is not base), base.name)


def make_run(rng: random.Random, bases: Path, folder: Path) -> Case:
    """A run folder whose files are damaged, absent, or those of another run."""
    import yaml

    base = a_base(rng)
    run = _copy_run(base, bases, folder)
    notes = []
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice(sorted(p for p in run.rglob("*") if p.is_file()))
        way = rng.randrange(5)
        notes.append(f"{path.name} {way}")
        if way == 0:
            path.unlink()
        elif way == 1:
            other = rng.choice(sorted(p for p in bases.rglob(path.name) if p.is_file()))
            shutil.copy(other, path)
        elif way == 2 or path.suffix != ".yaml":
            path.write_bytes(spoilt_bytes(rng, path.read_bytes()))
        else:
            config = yaml.safe_load(path.read_text())
            notes[-1] += spoil_nested(rng, config)
            path.write_text(yaml.safe_dump(config, sort_keys=False))
    data = bases.parent / "files" / base.file
    words, inputs = reading_commands(rng, run, data, folder)
    if rng.random() < 0.4:
        words, inputs = ["train", f"resume={run}"], [str(data)]
        words += rng.choice(([], ["trainer.max_epochs=2"]))
    return Case(0, "run folder", words, inputs, "; ".join(notes))


def make_checkpoint(rng: random.Random, bases: Path, folder: Path) -> Case:
    """A checkpoint whose parts are valid tensors and JSON, but not what training wrote."""
    base = a_base(rng)
    run = _copy_run(base, bases, folder)
    path = rng.choice(sorted(run.rglob("*.ckpt")))
    note = f"{path.relative_to(run)}: {spoil_checkpoint(rng, path)}"
    data = bases.parent / "files" / base.file
    words, inputs = reading_commands(rng, run, data, folder)
    way = rng.randrange(6)
    if way == 0 or "last" in path.name:
        words, inputs = ["train", f"resume={run}", "trainer.max_epochs=2"], [str(data)]
    elif way == 1:
        words = [*train_words(base, bases.parent / "files"), f"hydra.run.dir={folder / 'new'}"]
        words.append(f"init_from={rng.choice((run, path))}")
    elif way == 2 and base.name == "ensemble":
        words = [*train_words(base, bases.parent / "files"), f"hydra.run.dir={folder / 'new'}"]
        words += ["data.features=chemprop-v2", f"model.encoder_from={path}"]
    return Case(0, "checkpoint", words, inputs, note)


MAKERS: dict[str, Maker] = {
    "config": make_config,
    "command": make_command,
    "file": make_file,
    "run": make_run,
    "checkpoint": make_checkpoint,
}


def fuzz(
    folder: Path, seed: int, numbers: Iterator[int], until: float, kinds: Sequence[str]
) -> int:
    """Runs cases until the time is over; returns how many faults there are."""
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{STRANGER}.py").write_text("class Thing:\n    pass\n\n\ndef f(*a):\n    pass\n")
    (folder / "faults").mkdir(exist_ok=True)
    # One cache for all: what is packed once is not packed again.
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    worker = Worker(site)
    make_bases(folder, worker)
    counts: Counter[tuple[str, str]] = Counter()
    with open(folder / "cases.jsonl", "a") as log:
        for number in numbers:
            if time.monotonic() > until:
                break
            case, end, found = run_case(folder, seed, number, worker, kinds)
            if end.interrupted:
                result = "interrupted"
            else:
                result = "no exit" if end.code is None else f"exit {end.code}"
            counts[case.kind, result] += 1
            counts["all", result] += 1
            record = {**asdict(case), "code": end.code, "seconds": round(end.seconds, 1)}
            log.write(json.dumps({"seed": seed, **record, "faults": found}) + "\n")
            log.flush()
            if found:
                counts[case.kind, "faults"] += 1
                counts["all", "faults"] += 1
                kept = folder / "faults" / f"{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder / "case", kept, symlinks=True)
                text = f"{case}\n{end.code} {end.reason}\n{end.error[-6000:]}"
                (kept / "fault.txt").write_text(text)
                last = (end.error.strip().splitlines() or [""])[-1][:200]
                print(f"{number} {case.kind}: {', '.join(found)} | {last}", flush=True)
    worker.close()
    print(table_of(counts))
    return counts["all", "faults"]


def run_case(
    folder: Path, seed: int, number: int, worker: Worker, kinds: Sequence[str]
) -> tuple[Case, End, list[str]]:
    """Makes a case, runs its command and judges the end."""
    rng = random.Random(f"{seed}-{number}")
    own = folder / "case"
    shutil.rmtree(own, ignore_errors=True)
    (own / "cwd").mkdir(parents=True)
    case = MAKERS[rng.choice(list(kinds))](rng, folder / "bases", own)
    case.number = number
    before = {path: digest_of(Path(path)) for path in case.inputs}
    end = worker.run(Job(case.argv, str(own / "cwd")))
    return case, end, faults(case, end, own, before)


def table_of(counts: Counter[tuple[str, str]]) -> str:
    """The counts, a row for each kind."""
    kinds = dict.fromkeys(kind for kind, _ in sorted(counts) if kind != "all")
    columns = ("exit 0", "exit 1", "exit 2", "interrupted", "no exit", "faults")
    rows = [["", "commands", *columns]]
    for kind in (*kinds, "all"):
        numbers = [counts[kind, column] for column in columns]
        rows.append([kind, *map(str, (sum(numbers[:-1]), *numbers))])
    return "\n".join("".join(f"{cell:>12}" for cell in row) for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs cases of a seed; exit code 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where everything is kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--kinds", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument("--worker", metavar="MODULE:FUNCTION", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        work(args.worker)
        return 0
    if args.folder is None:
        parser.error("name a FOLDER")
    last = 10**9 if args.case is None else args.case + 1
    numbers = iter(range(args.first if args.case is None else args.case, last))
    until = time.monotonic() + 60 * args.minutes
    return int(fuzz(args.folder.absolute(), args.seed, numbers, until, args.kinds) > 0)


if __name__ == "__main__":
    sys.exit(main())
