"""Datasets that keep what they lowered: for equal models and examples, whole or not at all."""

from __future__ import annotations

import enum
import functools
import math
import operator
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphfold import blocks as td
from graphfold.blocks.fingerprint import fingerprint
from graphfold.errors import DataError

WORDS = {"a": 1, "b": 2}


def scored(text: Callable[[Any], Any] = str.lower) -> td.Block:
    """From a text to a vector, with a metric and labels."""
    letter = td.InputTransform(ord) >> td.Scalar("int64") >> td.Embedding(128, 3)
    noted = td.AllOf(td.FC(2) >> td.Identity(), td.Identity()) >> td.GetItem(0)
    word = td.Map(letter) >> td.Sum() >> noted

    @td.compose
    def root(x: Any) -> Any:
        state = word(td.InputTransform(text)(td.GetItem(0)(x)))
        td.Metric("state")(state, td.GetItem(1)(x))
        return state

    return root


EXAMPLES = [("Abc", 1), ("", None), ("xyz", 2.5), ("Abc", 1), ("q", ("pair", [True, {"k": -1}]))]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def stored(folder: Path, root: Any, examples: Any = (), key: str | None = None) -> None:
    """Stores the graphs of a new model."""
    td.BlockDataset(td.compile(root), list(examples), cache_dir=folder, cache_key=key)


def same_results(model: td.CompiledModel, data: td.BlockDataset, examples: list[Any]) -> None:
    got, want = model.run(data[range(len(examples))]), model.run(examples)
    torch.testing.assert_close(got.output, want.output)
    torch.testing.assert_close(got.metrics, want.metrics)
    assert repr(got.labels) == repr(want.labels)  # 1, 1.0 and True are equal


@pytest.mark.parametrize("workers", [0, 2])
def test_graphs_come_from_the_file_the_second_time(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "new" / "folder"
    first = td.BlockDataset(td.compile(scored()), EXAMPLES, workers, cache_dir=folder)
    assert [Path(name).suffix for name in files(folder)] == [".arrow"]
    model = td.compile(scored())
    model.run([("k", 1)])  # has types of its own by then
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(td.CompiledModel, "lower", None)
        data = td.BlockDataset(model, tuple(EXAMPLES), cache_dir=str(folder))
    assert len(data) == len(first) == 5
    same_results(model, data, EXAMPLES)
    assert len(files(folder)) == 1


LABELS = [0, -1, 1.5, math.nan, "x", None, True, (1, ("a",)), [1, []], {"a": {2: (None,)}}]
NUMPY_LABELS = [np.int64(3), np.float32(0.1), np.bool_(True), np.str_("text")]


def test_labels_come_back_as_they_were(tmp_path: Path) -> None:
    block = td.Map((td.Scalar(), td.Identity()) >> td.Metric("m")) >> td.Void()
    examples = [[(1, label) for label in [*LABELS, *NUMPY_LABELS]], [(2, LABELS)]]
    for _ in range(2):
        model = td.compile(block)
        data = td.BlockDataset(model, examples, cache_dir=tmp_path)
        same_results(model, data, examples)
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for label in (object(), {1, 2}, np.zeros(2), 1j, deep):
        with pytest.raises(td.BlockValueError, match="a label cannot be stored"):
            td.BlockDataset(model, [[(1, label)]], cache_dir=tmp_path, cache_key="k")
    assert len(files(tmp_path)) == 1


def test_no_examples_are_stored_too(tmp_path: Path) -> None:
    for _ in range(2):
        model = td.compile(scored())
        data = td.BlockDataset(model, [], cache_dir=tmp_path)
        assert model(data[[]]).shape == (0, 2)
    assert len(files(tmp_path)) == 1


def of(root: Any, examples: Any = (), key: str | None = None) -> str:
    """The fingerprint of a new model and examples."""
    model = td.compile(root)
    return fingerprint([model.root, examples], model.node_types.operations.name_of, key)


def through(function: Callable[..., Any]) -> str:
    return of(td.InputTransform(function) >> td.Length())


def closing_over(value: Any) -> Any:
    return lambda x: (x, value)


def helper(x: Any) -> Any:
    return WORDS.get(x)


class Reader:
    """Reads words."""

    limit = 3

    @functools.cached_property
    def most(self) -> Any:
        return self.limit

    def __init__(self, words: Any) -> None:
        self.words = words

    def read(self, x: Any) -> Any:
        return helper(x), self.words, self.most

    def __call__(self, x: Any) -> Any:
        return self.read(x)


@dataclass
class Tree:
    children: list[Any]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


READABLE: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda x: x,
    "other_code": lambda: lambda x: [x],
    "constant": lambda: lambda x: (x, 1),
    "type_of_constant": lambda: lambda x: (x, 1.0),
    "attribute": lambda: lambda x: x.real,
    "other_attribute": lambda: lambda x: x.imag,
    "default": lambda: lambda x, y=1: x,
    "keyword": lambda: lambda x, *, y=1: x,
    "closure": lambda: closing_over(1),
    "closure_true": lambda: closing_over(True),
    "closure_dict": lambda: closing_over({"a": 1}),
    "closure_pairs": lambda: closing_over([("a", 1)]),
    "closure_set": lambda: closing_over({"a", "b"}),
    "closure_nothing": lambda: closing_over(()),
    "closure_nested": lambda: closing_over(((),)),
    "closure_array": lambda: closing_over(np.arange(3)),
    "closure_other_array": lambda: closing_over(np.arange(3, dtype=np.int32)),
    "closure_row": lambda: closing_over(np.arange(3)[None]),
    "closure_objects": lambda: closing_over(np.array([None, 1], object)),
    "closure_number": lambda: closing_over(np.int64(3)),
    "closure_tensor": lambda: closing_over(torch.arange(3)),
    "closure_words": lambda: closing_over(WORDS),
    "closure_pattern": lambda: closing_over(re.compile("a")),
    "closure_generator": lambda: closing_over(random.Random(0)),
    "closure_path": lambda: closing_over(Path("a")),
    "closure_member": lambda: closing_over(Color.RED),
    "closure_other_member": lambda: closing_over(Color.BLUE),
    "closure_dataclass": lambda: closing_over(Tree([Tree([])])),
    "closure_other_dataclass": lambda: closing_over(Tree([])),
    "nested": lambda: lambda x: [y + 1 for y in x],
    "other_nested": lambda: lambda x: [y + 2 for y in x],
    "helper": lambda: helper,
    "method": lambda: Reader(1).read,
    "method_of_other": lambda: Reader(2).read,
    "callable": lambda: Reader(1),
    "partial": lambda: functools.partial(helper, 1),
    "cached": lambda: functools.cache(helper),
    "builtin": lambda: len,
    "other_builtin": lambda: ord,
    "unbound": lambda: str.lower,
    "bound": lambda: {"a": 1}.get,
    "other_bound": lambda: {"a": 2}.get,
    "operator": lambda: operator.itemgetter(1),
    "other_operator": lambda: operator.itemgetter(2),
    "library": lambda: lambda x: np.asarray(x),
    "other_library": lambda: lambda x: math.floor(x),
    "import": lambda: importing,
}


def importing(x: Any) -> Any:
    import json

    return json.loads(x)


def test_functions_differ_in_all_that_they_consist_of() -> None:
    found = {name: through(make()) for name, make in READABLE.items()}
    assert len(set(found.values())) == len(found), found
    assert {name: through(make()) for name, make in READABLE.items()} == found


def test_what_functions_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def both() -> list[str]:
        return [through(helper), through(Reader(1)), through(lambda x: Reader(x))]

    before = both()
    with monkeypatch.context() as patch:
        patch.setitem(WORDS, "c", 3)
        assert not set(both()) & set(before)
    assert both() == before
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "limit", 4)
        changed = both()
        assert changed[0] == before[0]
        assert not set(changed[1:]) & set(before[1:])
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "helper", lambda x: x)
        assert not set(both()) & set(before)


def test_modules_of_ones_own_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = set()
    for number, text in enumerate(["SIZE = 1", "SIZE = 2", "SIZE = 1\ndef other(): pass"]):
        name = f"own_module_{number}"
        (tmp_path / f"{name}.py").write_text(f"import {name}\n{text}\n")
        own = __import__(name)
        monkeypatch.setitem(globals(), "own", own)
        found.add(through(lambda x: own_size(x)))
    assert len(found) == 3


def own_size(x: Any) -> Any:
    return own.SIZE  # type: ignore[name-defined]  # noqa: F821


ROOTS: list[Callable[[], Any]] = [
    lambda: td.Scalar(),
    lambda: td.Scalar("int32"),
    lambda: td.Vector(2),
    lambda: td.GetItem("a") >> td.Scalar(),
    lambda: td.GetItem("b") >> td.Scalar(),
    lambda: td.Slice(stop=2) >> td.Length(),
    lambda: td.Slice(stop=3) >> td.Length(),
    lambda: td.Record([("a", td.Scalar()), ("b", td.Scalar())]),
    lambda: td.Record([("b", td.Scalar()), ("a", td.Scalar())]),
    lambda: td.OneHot(3),
    lambda: td.OneHot(1, 4),
    lambda: td.OneHotFromList("abc"),
    lambda: td.OneHotFromList("abd"),
    lambda: td.OneHotFromList("abc", strict=False),
    lambda: td.Optional(td.Scalar()),
    lambda: td.OneOf(len, {1: td.Length(), 2: td.Length()}),
    lambda: td.OneOf(len, {1: td.Length(), 3: td.Length()}),
    lambda: td.OneOf(abs, {1: td.Scalar(), 2: td.Scalar()}),
    lambda: td.Map(td.Scalar()) >> td.Sum(),
    lambda: td.Map(td.Scalar()) >> td.Max(),
    lambda: td.Map(td.Scalar()) >> td.Reduce(torch.add),
    lambda: td.Map(td.Scalar()) >> td.Reduce(torch.mul),
    lambda: td.Map(td.Scalar()) >> td.Fold(torch.add, td.Zeros([])),
    lambda: td.Map(td.Scalar()) >> td.NGrams(2) >> td.Map(torch.add) >> td.Sum(),
    lambda: (td.Scalar(), td.Scalar()) >> td.compose(lambda x: (x[0], x[1])),
    lambda: (td.Scalar(), td.Scalar()) >> td.compose(lambda x: (x[1], x[0])),
    lambda: td.Vector(2) >> nn.Linear(2, 2),
    lambda: td.Vector(2) >> nn.Linear(2, 3),
    lambda: td.recursive(lambda t: td.OneOf(len, {0: td.Length(), 1: td.GetItem(0) >> t})),
    lambda: td.recursive(lambda t: td.OneOf(len, {0: td.Length(), 1: td.GetItem(-1) >> t})),
]


def test_blocks_differ_in_all_that_lowering_depends_on() -> None:
    found = [of(make()) for make in ROOTS]
    assert len(set(found)) == len(found)
    assert [of(make()) for make in ROOTS] == found


def test_what_tensors_are_computed_with_is_not_part_of_it() -> None:
    weights = [nn.Linear(2, 2), nn.Linear(2, 2)]
    assert of(td.Vector(2) >> weights[0]) == of(td.Vector(2) >> weights[1])
    block = td.Vector(2) >> nn.Linear(2, 2)
    before = of(block)
    assert (block >> td.Void()).eval([1, 2]) is None  # another block reads it
    assert of(block) == before


SAME = [{"b": (1, 2.0, None), "a": [b"x", "y"]}, Tree([Tree([]), 3]), {"s", "t", "u"}]


def test_examples_differ_in_content_type_and_order() -> None:
    different: list[Any] = [
        [1], [True], [1.0], ["1"], [b"1"], [None], [[1]], [(1,)], [1, 1], [[1], []], [[], [1]],
        [{"a": 1, "b": 2}], [{"b": 2, "a": 1}], [{1}], [-0.0], [0.0], [math.inf], [2**70],
        [np.zeros(2)], [np.zeros((2, 1))], [np.float32(0)], [torch.zeros(2)], [Tree([])],
    ]  # fmt: skip
    found = [of(td.Scalar(), examples) for examples in different]
    assert len(set(found)) == len(found)
    deep: Any = 0
    for _ in range(20_000):
        deep = [deep]
    assert of(td.Scalar(), [deep]) != of(td.Scalar(), [deep[0]])


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
import test_lowered_files as t
td = t.td
root = t.scored(lambda x: x.lower() if x not in {"stop", "words", "of", "all"} else "")
model = td.compile(root)
data = td.BlockDataset(model, t.EXAMPLES * 50, cache_dir=sys.argv[2])
print(t.of(root, t.SAME), len(data), sorted({t.through(make()) for make in t.READABLE.values()}))
"""


def test_processes_agree_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(tmp_path)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(seed))
        for seed in range(3)
    ]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(set(printed)) == 1
    assert " 250 " in printed[0]
    assert [Path(name).suffix for name in files(tmp_path)] == [".arrow"]


def environment(seed: int) -> dict[str, str]:
    """That of this process, with an order of sets of its own."""
    return {**os.environ, "PYTHONHASHSEED": str(seed)}


def evaluating(x: Any) -> Any:
    return eval(x)


def opening(x: Any) -> Any:
    with open(x) as file:
        return file.read()


def naming(x: Any) -> Any:
    return not_there(x)  # type: ignore[name-defined]  # noqa: F821


LINEAR, LOCK = nn.Linear(2, 2), threading.Lock()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (evaluating, "'eval' may do or read anything"),
        (opening, "'open' may do or read anything"),
        (naming, "it names 'not_there', which is not there"),
        (lambda x: LINEAR(x), "its parameters may change"),
        (lambda x: (x, LOCK), "cannot pickle '_thread.lock' object"),
        (closing_over(i for i in range(3)), "cannot pickle 'generator' object"),
    ],
)
def test_what_cannot_be_read_needs_a_key(tmp_path: Path, function: Any, why: str) -> None:
    def root() -> td.Block:
        return td.InputTransform(function) >> td.Length()

    with pytest.raises(td.BlockValueError, match=f"{re.escape(why)}.* Give a cache_key"):
        stored(tmp_path, root())
    assert files(tmp_path) == []
    stored(tmp_path, root(), key="1")
    stored(tmp_path, root(), key="1")
    assert len(files(tmp_path)) == 1
    stored(tmp_path, root(), key="2")
    assert len(files(tmp_path)) == 2


def test_functions_that_keep_something_are_refused(tmp_path: Path) -> None:
    codes: dict[str, int] = {}
    numbered = td.InputTransform(lambda x: codes.setdefault(x, len(codes))) >> td.Scalar("int64")
    with pytest.raises(td.BlockValueError, match="a function of theirs keeps something"):
        stored(tmp_path, numbered, ["a", "b"])
    assert files(tmp_path) == []
    stored(tmp_path, numbered, ["a", "b"])  # now they are known
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("damage", [b"", b"nothing", None])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    stored(tmp_path, scored(), EXAMPLES)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    model = td.compile(scored())
    same_results(model, td.BlockDataset(model, EXAMPLES, cache_dir=tmp_path), EXAMPLES)
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="nothing can be stored there"):
        stored(tmp_path / "file" / "folder", td.Scalar(), [1])


def test_an_example_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(td.BlockValueError, match="cannot make 'x' a tensor"):
        stored(tmp_path, td.Scalar(), [1, "x"])
    assert files(tmp_path) == []
