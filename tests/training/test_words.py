"""Runs with vectors, characters and encoders, from the command line to the predictions."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training.tiny_runs import WORDS, read_json, run, train

from benchmarks.experiment import load_experiment
from graphfold.batching.native.library import why_missing
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.training.run.checkpoint import Checkpoint

TABLE = "encoder.encoders.word.table"
SMALL = ["trainer.max_epochs=1", "model.hidden_size=6", "data.batch_size=6"]
COMPILED = [] if why_missing(torch.float32) else ["model.run=compiled"]  # an error unless they are
#: Models that read words in different ways.
MODELS = ("mv_rnn", "sequence_tree_lstm")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of 4 numbers for all words but the last two, and for one that no tree has."""
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("vectors") / "v.txt"
    words = (*WORDS[:-2], "unseen")
    rows = (" ".join([word, *(f"{rng.gauss(0, 1):.3f}" for _ in range(4))]) for word in words)
    path.write_text("\n".join(rows) + "\n")
    return path


def word_rows(folder: Path, name: str = "best") -> dict[str, torch.Tensor]:
    """word -> its embedding in a checkpoint."""
    checkpoint = Checkpoint.load(folder / "checkpoints" / f"{name}.ckpt")
    (vocabulary,) = FeatureSpec.from_dict(checkpoint.spec).vocabularies.values()
    table = checkpoint.state_dict[TABLE]
    return dict(zip(("", *vocabulary.words), table, strict=False))


def read_given(path: Path) -> dict[str, list[float]]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {word: [float(value) for value in values] for word, *values in rows}


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_sst_glove_trains_from_vectors_and_needs_them_no_more(
    corpora: Path, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = shutil.copy(vectors, tmp_path / "v.txt")
    root = f"data.root={corpora}"
    more = [f"data.vectors={own}", root, *SMALL, *COMPILED]
    folder = train(tmp_path / "run", "experiment=sst_glove", *more)
    assert "vectors of 4 numbers for 8 of 10 words (80.0%)" in capsys.readouterr().out
    given = read_given(vectors)
    for word, row in word_rows(folder).items():
        if word in given:  # at a tenth of the learning rate, one epoch moves it little
            assert np.abs(row.numpy() - given[word]).max() < 0.05, word
        else:
            assert row.abs().max() < 0.11, word
    Path(own).unlink()
    test = corpora / "sst" / "test.txt"
    assert run("evaluate", folder, "--json", tmp_path / "e.json") == 0
    assert read_json(tmp_path / "e.json") == pytest.approx(
        read_json(folder / "metrics.json"), abs=1e-5
    )
    (tmp_path / "new.txt").write_text("(_ (_ unheard) (_ film))\n")
    capsys.readouterr()
    assert run("predict", folder, tmp_path / "new.txt") == 0
    (answer,) = lines(capsys.readouterr().out)
    assert answer["prediction"] in range(5)
    assert run("predict", folder, test, "--set", "vectors=other.txt") == 2
    assert "data.vectors cannot be changed for a trained model" in capsys.readouterr().err


def test_a_missing_value_of_an_experiment_is_named(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "experiment=sst_glove", f"data.root={corpora}") == 2
    fault = "data.vectors has no value, which this run needs. Add data.vectors=VALUE."
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize("model", MODELS)
def test_models_take_vectors_of_another_width(model: str, corpora: Path, vectors: Path) -> None:
    own = ["data=sst", f"model={model}", f"data.vectors={vectors}", f"data.root={corpora}"]
    loaded = load_experiment([*own, "data.characters=true", *SMALL])
    assert loaded.graph_model.encoder.widths["word"] == 4
    loaded.model.train()
    (batch,) = loaded.batches(1)
    loaded.step(batch)
    assert all(torch.isfinite(weight).all() for weight in loaded.model.parameters())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model=block_tree_lstm"], "needs a model with an encoder of words"),
        (
            ["data.characters=true", "+model.encoder.features={word: [characters]}"],
            "which the encoder of the model does not read",
        ),
    ],
)
def test_a_model_without_a_place_for_vectors_is_refused(
    more: list[str], message: str, corpora: Path, vectors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["data=sst", f"data.vectors={vectors}", f"data.root={corpora}", *SMALL, *more]
    assert run("train", *own) == 2
    assert message in capsys.readouterr().err


def test_other_adapters_with_words_take_them_too(
    corpora: Path, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["data=ud_english_ewt", f"data.vectors={vectors}", f"data.root={corpora}", *SMALL]
    folder = train(tmp_path / "run", *own, "data.characters=true")
    assert "vectors of 4 numbers" in capsys.readouterr().out
    sentences = corpora / "ud_english_ewt" / "en_ewt-ud-test.conllu"
    assert run("predict", folder, sentences) == 0
    assert all(not answer["reason"] for answer in lines(capsys.readouterr().out))


def test_frozen_vectors_stay_in_every_member(corpora: Path, vectors: Path, tmp_path: Path) -> None:
    own = ["data=sst", f"data.vectors={vectors}", f"data.root={corpora}", *SMALL]
    folder = train(tmp_path / "run", *own, "ensemble=2", f"freeze=[{TABLE}]")
    weights = Checkpoint.load(folder / "checkpoints" / "best.ckpt").state_dict
    first, second = (weights[f"members.{k}.{TABLE}"] for k in range(2))
    is_equal = (first == second).all(1)
    assert int(is_equal.sum()) == 9  # eight vectors and the row of a missing word
    given, actual = read_given(vectors), word_rows(folder / "members" / "2")
    for word in WORDS[:-2]:
        assert actual[word].tolist() == pytest.approx(given[word])
    assert (first[~is_equal].abs() <= 0.05).all()
