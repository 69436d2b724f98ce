"""Datasets that keep what they lowered: under a version that the user gives."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfold import blocks as td
from graphfold.errors import DataError


def scored() -> td.Block:
    """From a text and a label to a vector, with a metric."""
    letter = td.InputTransform(ord) >> td.Scalar("int64") >> td.Embedding(128, 3)
    word = td.Map(letter) >> td.Sum() >> td.FC(2)

    @td.compose
    def root(x: Any) -> Any:
        state = word(td.GetItem(0)(x))
        td.Metric("state")(state, td.GetItem(1)(x))
        return state

    return root


EXAMPLES = [("Abc", 1), ("", None), ("xyz", 2.5), ("Abc", 1), ("q", ("pair", [True, {"k": -1}]))]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def stored(folder: Path, root: Any, examples: Any, version: str = "1") -> td.BlockDataset:
    """The dataset of a new model."""
    return td.BlockDataset(td.compile(root), examples, cache_dir=folder, version=version)


def same_results(model: td.CompiledModel, data: td.BlockDataset, examples: list[Any]) -> None:
    got, want = model.result(data[range(len(examples))]), model.result(examples)
    torch.testing.assert_close(got.output, want.output)
    torch.testing.assert_close(got.metrics, want.metrics)
    assert repr(got.labels) == repr(want.labels)  # 1, 1.0 and True are equal


@pytest.mark.parametrize("workers", [0, 2])
def test_graphs_come_from_the_file_the_second_time(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "new" / "folder"
    model = td.compile(scored())
    first = td.BlockDataset(model, EXAMPLES, workers, cache_dir=folder, version="1")
    assert [path.suffix for path in files(folder)] == [".graphs"]
    model = td.compile(scored())
    model.result([("k", 1)])  # has types of its own by then
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(td.CompiledModel, "lower", None)
        data = td.BlockDataset(model, tuple(EXAMPLES), cache_dir=str(folder), version="1")
    assert len(data) == len(first) == 5
    same_results(model, data, EXAMPLES)
    assert len(files(folder)) == 1
    stored(folder, scored(), EXAMPLES, version="2")
    assert len(files(folder)) == 2


LABELS = [0, -1, 1.5, math.nan, "x", None, True, (1, ("a",)), [1, []], {"a": {2: (None,)}}]
NUMPY_LABELS = [np.int64(3), np.float32(0.1), np.bool_(True), np.str_("text")]


def test_labels_come_back_as_they_were(tmp_path: Path) -> None:
    block = td.Map((td.Scalar(), td.Identity()) >> td.Metric("m")) >> td.Void()
    examples = [[(1, label) for label in [*LABELS, *NUMPY_LABELS]], [(2, LABELS)]]
    for _ in range(2):
        model = td.compile(block)
        data = td.BlockDataset(model, examples, cache_dir=tmp_path, version="1")
        same_results(model, data, examples)
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for label in (object(), {1, 2}, np.zeros(2), 1j, deep):
        with pytest.raises(td.BlockValueError, match="a label cannot be stored"):
            stored(tmp_path, block, [[(1, label)]], version="other")
    assert len(files(tmp_path)) == 1


def test_no_examples_are_stored_too(tmp_path: Path) -> None:
    for _ in range(2):
        model = td.compile(scored())
        data = td.BlockDataset(model, [], cache_dir=tmp_path, version="1")
        assert model(data[[]]).shape == (0, 2)
    assert len(files(tmp_path)) == 1


def test_a_folder_needs_a_version(tmp_path: Path) -> None:
    with pytest.raises(td.BlockValueError, match="cache_dir needs a version"):
        td.BlockDataset(td.compile(td.Scalar()), [1], cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("root", "examples", "fault"),
    [
        (td.Vector(2) >> td.FC(3), [[1, 2]], "lowered from 2 examples, but there are 1"),
        (td.Vector(2) >> td.FC(5, name="other"), [[1, 2], [3, 4]], "no operation 'FC_3'"),
        (td.Vector(4) >> td.FC(3), [[1, 2, 3, 4]] * 2, "another of that name"),
    ],
)
def test_a_version_of_other_examples_or_another_model_is_refused(
    tmp_path: Path, root: td.Block, examples: Any, fault: str
) -> None:
    stored(tmp_path, td.Vector(2) >> td.FC(3), [[1, 2], [3, 4]])
    with pytest.raises(td.BlockValueError, match=f"{fault}.*Give another version"):
        stored(tmp_path, root, examples)


def test_several_may_store_at_once(tmp_path: Path) -> None:
    def store(number: int) -> int:
        return len(stored(tmp_path, scored(), EXAMPLES * 50))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(store, range(3))) == [250] * 3
    assert [path.suffix for path in files(tmp_path)] == [".graphs"]


@pytest.mark.parametrize("name", ["manifest.json", "0.npy"])
def test_a_damaged_copy_is_rebuilt(tmp_path: Path, name: str) -> None:
    stored(tmp_path, scored(), EXAMPLES)
    (copy,) = tmp_path.iterdir()
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[: len(whole) // 2])
    model = td.compile(scored())
    data = td.BlockDataset(model, EXAMPLES, cache_dir=tmp_path, version="1")
    same_results(model, data, EXAMPLES)
    assert (copy / name).read_bytes() == whole


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="nothing can be stored there"):
        stored(tmp_path / "file" / "folder", td.Scalar(), [1])


def test_an_example_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(td.BlockValueError, match="cannot make 'x' a tensor"):
        stored(tmp_path, td.Scalar(), [1, "x"])
    assert files(tmp_path) == []
