"""A damaged config of a stored run is refused with its file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from training.tiny_runs import listops, run

from graphfold.training.config.compose import compose


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return dict(compose(listops()).config.mapping)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer": None}, "trainer is None, but it must be a mapping"),
        ({"trainer": "hello"}, "trainer is 'hello', but it must be a mapping"),
        ({"data": []}, "data is \\[\\], but it must be a mapping"),
        ({"seed": "one"}, "seed is 'one', but it must be a whole number"),
        ({"model": {}}, "there is no key 'model._target_' in the config"),
        ({"loss": {"reduction": "mean"}}, "loss.reduction is 'mean', but it is one of"),
        ({"trainer": {"_target_": "x"}}, "there is no key 'trainer."),
        ({"callbacks": 3}, "callbacks is 3, but it must be a mapping or null"),
        ({"data": {"corpus": []}}, "data.corpus is \\[\\], but it must be a string or null"),
        ({"data": {"batch_size": 0}}, "data.batch_size is 0"),
        ({"monitor": 1}, "monitor is 1, but it must be a string or null"),
    ],
)
def test_a_value_of_the_wrong_kind(
    config: dict[str, Any],
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, **changes}))
    assert run("train", f"resume={tmp_path}") == 2
    error = capsys.readouterr().err
    assert f"{tmp_path}/config.yaml: " in error
    assert message.replace("\\", "") in error


@pytest.mark.parametrize(
    "key", ["trainer", "data", "model", "optimizer", "loss", "seed", "monitor"]
)
def test_a_key_that_is_gone(
    config: dict[str, Any], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = {name: value for name, value in config.items() if name != key}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(rest))
    assert run("train", f"resume={tmp_path}") == 2
    assert f"config.yaml: there is no key '{key}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "hello", "[1, 2]", "a: [", "a: \x00", "\ud83d", "1: 2"])
def test_a_file_that_holds_no_config(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_bytes(text.encode(errors="surrogatepass"))
    assert run("train", f"resume={tmp_path}") == 2
    assert "config.yaml: " in capsys.readouterr().err


def test_a_config_cut_anywhere(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # These may be absent.
    newer = {"ensemble", "calibration", "freeze"}
    known = {key: value for key, value in config.items() if key not in newer}
    text = yaml.safe_dump(known, sort_keys=False)
    for size in range(0, len(text) - 60, 97):
        (tmp_path / "config.yaml").write_text(text[:size])
        assert run("train", f"resume={tmp_path}") == 2
        assert "config.yaml: " in capsys.readouterr().err
