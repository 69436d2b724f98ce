"""Checkpoints hold plain tensors and JSON, and anything else is refused."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfold.errors import CheckpointError
from graphfold.training.run.checkpoint import FORMAT, SCHEMA_NUMBER, Checkpoint


def make() -> Checkpoint:
    return Checkpoint(
        config={"seed": 1, "name": "ünï"},
        spec={"source": {}},
        split={"train": [0, 2]},
        packages=["mine"],
        state_dict={"weight": torch.arange(3.0)},
        training_records=torch.tensor([5, -7]),
        progress={"epoch": 3, "generators": [{"torch": torch.get_rng_state()}]},
    )


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    path.write_bytes(make().encode())
    loaded = Checkpoint.load(path)
    assert loaded.config == make().config
    assert loaded.split == make().split
    assert loaded.packages == ["mine"]
    assert torch.equal(loaded.state_dict["weight"], torch.arange(3.0))
    assert loaded.progress["epoch"] == 3


def without_checksum(content: bytes) -> bytes:
    """The file as earlier versions wrote it."""
    size = len(b"graphfold sha256\n") + 32
    return content[: -size - 2] + b"\0\0"


def test_every_changed_bit_is_noticed(tmp_path: Path) -> None:
    content, path = bytes(make().encode()), tmp_path / "x.ckpt"
    rng = random.Random(0)
    ends = [*range(8), *range(8 * len(content) - 8 * 72, 8 * len(content), 5)]
    for bit in [*ends, *(rng.randrange(8 * len(content)) for _ in range(300))]:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="x.ckpt: .* damaged"):
            Checkpoint.load(path)


def test_an_earlier_checkpoint_without_checksum_is_read_and_its_tensors_are_checked(
    tmp_path: Path,
) -> None:
    content, path = without_checksum(bytes(make().encode())), tmp_path / "x.ckpt"
    path.write_bytes(content)
    assert torch.equal(Checkpoint.load(path).state_dict["weight"], torch.arange(3.0))
    at = content.index(struct.pack("<3f", 0, 1, 2))
    path.write_bytes(content[: at + 5] + bytes([content[at + 5] ^ 64]) + content[at + 6 :])
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoint.load(path)


def test_content_is_that_of_the_moment(tmp_path: Path) -> None:
    checkpoint, path = make(), tmp_path / "x.ckpt"
    content = checkpoint.encode()
    checkpoint.state_dict["weight"].zero_()
    checkpoint.progress["epoch"] = 4
    path.write_bytes(content)
    loaded = Checkpoint.load(path)
    assert torch.equal(loaded.state_dict["weight"], torch.arange(3.0))
    assert loaded.progress["epoch"] == 3


def test_everything_but_tensors_is_json(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").write_bytes(make().encode())
    content = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert content["schema_number"] == SCHEMA_NUMBER
    for key in ("config", "spec", "split", "packages", "versions"):
        json.loads(content[key])


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def damaged(path: Path, kind: str) -> None:
    path.write_bytes(make().encode())
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "text":
        path.write_text("hello")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"format": FORMAT}))
    elif kind == "evil":
        torch.save({"format": FORMAT, "schema_number": 1, "config": Evil()}, path)
    elif kind == "list":
        torch.save([1, 2], path)
    elif kind == "lightning":
        torch.save({"state_dict": {}, "pytorch-lightning_version": "2"}, path)
    elif kind == "newer":
        torch.save({"format": FORMAT, "schema_number": SCHEMA_NUMBER + 1}, path)
    elif kind == "half":
        torch.save({"format": FORMAT, "schema_number": 1, "config": "{"}, path)
    elif kind == "folder":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "the file is empty"),
        ("cut", "not a checkpoint of graphfold, or damaged"),
        ("text", "not a checkpoint"),
        ("pickle", "not a checkpoint"),
        ("evil", "cannot be read as tensors and plain values"),
        ("list", "not a checkpoint of graphfold"),
        ("lightning", "not a checkpoint of graphfold"),
        ("newer", "Install the newer graphfold"),
        ("half", "not a checkpoint of graphfold, or damaged"),
        ("folder", "cannot be read"),
    ],
)
def test_a_file_that_is_no_checkpoint(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged(tmp_path / "x.ckpt", kind)
    with pytest.raises(CheckpointError, match=message) as caught:
        Checkpoint.load(tmp_path / "x.ckpt")
    assert "x.ckpt" in caught.value.message
    assert not (tmp_path / "evil").exists()
