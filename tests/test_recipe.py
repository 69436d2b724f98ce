"""`graphfold.train` against the command, and what it makes of Python's values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from training.tiny_runs import listops, read_json, train

import graphfold
from graphfold.errors import ConfigError, GraphfoldError
from graphfold.recipe import Run
from graphfold.training.config.overrides import in_hydras_grammar, parse_overrides

#: Text of any kind, and of what Hydra's grammar gives a meaning.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.text("'\\\"$, =[]{}:a")
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"\A[a-z_]+\Z"), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(VALUES)
@example("true")
@example("Inf")
@example(["gcn", "a/b", "1", "größe"])
def test_hydra_reads_back_every_value(value: object) -> None:
    (override,) = parse_overrides([f"key={in_hydras_grammar(value)}"])
    assert not override.is_sweep_override()
    assert override.value() == value
    assert type(override.value()) is type(value)


def test_it_trains_as_the_command_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*listops(), f"data.cache_dir={tmp_path}/cache", "logger=none"]
    by_command = train(tmp_path / "command", *listops())
    pairs = (word.partition("=") for word in words)
    mapping = {key: yaml.safe_load(value) for key, _, value in pairs}
    threads = torch.get_num_threads()
    capsys.readouterr()
    by_words = graphfold.train(words, tmp_path / "words")
    assert f"training in {tmp_path / 'words'}\n" in capsys.readouterr().out
    by_mapping = graphfold.train(mapping, folder=tmp_path / "mapping")
    assert torch.get_num_threads() == threads
    assert by_words.folder == tmp_path / "words"
    assert by_words.metrics == by_mapping.metrics == read_json(by_command / "metrics.json")
    assert by_mapping.metrics == read_json(tmp_path / "mapping" / "metrics.json")
    expression = "( ( [MAX 2 ) 4 ) ]"
    answers = [r.load().predict([f"4\t{expression}"]) for r in (by_words, by_mapping)]
    assert answers[0] == answers[1] == graphfold.load(by_command).predict([f"4\t{expression}"])
    assert graphfold.train({"resume": by_words.folder}) == by_words  # finished: scored again
    with pytest.raises(ConfigError, match="continued in its own folder"):
        graphfold.train({"resume": str(by_words.folder)}, folder=tmp_path / "elsewhere")


def test_a_class_of_ones_own_is_loaded_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_heads.py").write_text(
        "from graphfold.layers import ClassificationHead\n\n\n"
        "class MyHead(ClassificationHead):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = [*listops(), "model.head._target_=my_heads.MyHead", "trainer.max_epochs=1"]
    run = graphfold.train([*words, f"data.cache_dir={tmp_path}/cache"], tmp_path / "run")
    assert run.packages == ("my_heads",)
    assert type(run.load().module.head).__name__ == "MyHead"
    sys.modules.pop("my_heads")


def test_what_is_wrong_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a string. Write \['data=smiles'\]"):
        graphfold.train("data=smiles")
    with pytest.raises(ConfigError, match="an override is Tensor"):
        graphfold.train({"seed": torch.tensor(1)})
    with pytest.raises(ConfigError, match="Did you mean 'seed'"):
        graphfold.train({"sead": 1}, tmp_path / "run")
    with pytest.raises(GraphfoldError, match="no such folder"):
        graphfold.train([], config_dir=tmp_path / "absent")
    assert not (tmp_path / "run").exists()


def test_a_run_is_shown_as_a_tree_and_says_why_it_has_no_model(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    metrics = {"val/rmse": 0.5, "test/rmse": None}
    assert str(Run(folder, metrics)).splitlines() == [
        "Run(",
        f"  {folder}",
        "               val        test",
        "  rmse         0.5   undefined",
        f"  the model cannot be loaded: {folder}: no such run folder or checkpoint. Correct the "
        "path.",
        ")",
    ]
