"""Features from an encoder: the same as transformers gives each sentence on its own."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets.words.tiny_encoder import write_encoder

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.settings import setting_faults
from graphfold.datasets.words import contextual
from graphfold.datasets.words.contextual import ContextOptions, ContextualEncoder
from graphfold.errors import ConfigError, DataError

transformers = pytest.importorskip("transformers", reason="needs transformers (extra 'text')")

SENTENCES = (["The", "film", "is", "brightly", "good"], ["bad"], ["a", "brights", "-LRB-", "film"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "bert")


def data(folder: Path, encoder: Path, **settings: object) -> DataModule:
    lines = [" ".join(f"(2 {word})" for word in words) for words in SENTENCES]
    (folder / "trees.txt").write_text("".join(f"(2 {line})\n" for line in lines))
    options = {"num_classes": 5, "fractions": [0.4, 0.3, 0.3], **settings}
    made = DataModule(
        adapter="brackets",
        path=folder / "trees.txt",
        cache_dir=folder / "cache",
        encoder=encoder,
        **options,
    )
    made.prepare()
    return made


def features(made: DataModule) -> torch.Tensor:
    return made.encoded().features("word")["context"]


def expected(encoder: Path, words: list[str], layers: list[int], only_first: bool) -> torch.Tensor:
    """[num_words, len(layers), 8] by the tokenizer's own alignment, one sentence at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    model = transformers.AutoModel.from_pretrained(encoder).eval()
    plain = [word.replace("-LRB-", "(") for word in words]
    encoded = tokenizer(plain, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**encoded, output_hidden_states=True).hidden_states
    chosen = torch.stack([states[layer][0] for layer in layers], dim=1)
    owner = encoded.word_ids()
    rows = [[k for k, word in enumerate(owner) if word == number] for number in range(len(words))]
    return torch.stack([chosen[own[:1] if only_first else own].mean(0) for own in rows])


@pytest.mark.parametrize("only_first", [False, True])
@pytest.mark.parametrize("join", ["concat", "mean"])
def test_features_are_those_of_transformers(
    join: str, only_first: bool, folder: Path, tmp_path: Path
) -> None:
    settings = {"encoder_layers": [-1, 0, 1], "encoder_join": join}
    settings["encoder_pieces"] = "first" if only_first else "mean"
    found = features(data(tmp_path, folder, **settings))
    parts = [expected(folder, words, [-1, 0, 1], only_first) for words in SENTENCES]
    wanted = torch.cat(parts)
    wanted = wanted.mean(1) if join == "mean" else wanted.flatten(1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_long_sentence_is_read_in_windows(folder: Path) -> None:
    """The encoder reads 14 pieces at once; the first eight are taken from the first window."""
    encoder = ContextualEncoder(folder, ContextOptions())
    words = ["good", "brightly", "film", "bad", "is"] * 10
    values = np.zeros((50, encoder.size), dtype=np.float32)
    encoder._encode(words, [list(range(50))], values)
    assert (np.abs(values).sum(1) > 0).all()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids = tokenizer(words, is_split_into_words=True)["input_ids"][1:15]
    with torch.no_grad():
        state = model(torch.tensor([[2, *ids, 3]])).last_hidden_state[0, 1:]
    owner = [[0], [1, 2, 3, 4], [5], [6], [7]]
    near = torch.stack([state[own].mean(0) for own in owner])
    torch.testing.assert_close(torch.from_numpy(values[:5]), near, rtol=1e-4, atol=1e-5)


def test_they_are_computed_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = features(data(tmp_path, folder)).clone()
    (stored,) = (tmp_path / "cache").glob("words-*.npy")
    monkeypatch.setattr(ContextualEncoder, "_encode", lambda *_: pytest.fail("encoded again"))
    assert torch.equal(features(data(tmp_path, folder)), first)
    monkeypatch.undo()
    data(tmp_path, folder, encoder_layers=[0])
    assert len(list((tmp_path / "cache").glob("words-*.npy"))) == 2
    assert stored.is_file()


def test_batches_of_any_size_give_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = features(data(tmp_path, folder)).clone()
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(contextual, "BATCH_PIECES", 1)
    torch.testing.assert_close(features(data(tmp_path, folder)), whole, rtol=1e-4, atol=1e-6)


def test_words_without_a_piece_are_unknown_and_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "trees.txt").write_text("(2 (2 a) (2 \u200b))\n" * 4)
    made = DataModule(
        adapter="brackets", path=tmp_path / "trees.txt", cache_dir=tmp_path, encoder=folder
    )
    made.prepare()
    assert made.word_notes == [
        "without a piece in the encoder, and unknown to it: 1 word ('\\u200b')"
    ]
    assert torch.isfinite(features(made)).all()


def test_a_stored_spec_needs_the_same_encoder(folder: Path, tmp_path: Path) -> None:
    made = data(tmp_path, folder)
    state = json.loads(json.dumps(made.state_dict()))
    moved = shutil.copytree(folder, tmp_path / "moved")
    settings = {"num_classes": 5, "cache_dir": tmp_path / "cache"}
    path = tmp_path / "trees.txt"
    again = DataModule(adapter="brackets", path=path, encoder=moved, **settings)
    again.prepare(state)
    assert torch.equal(features(again), features(made))
    write_encoder(tmp_path / "other", seed=1)
    other = DataModule(adapter="brackets", path=path, encoder=tmp_path / "other", **settings)
    with pytest.raises(DataError, match=r"other: is not the encoder .* Set data.encoder"):
        other.prepare(state)
    gone = DataModule(adapter="brackets", path=path, encoder=tmp_path / "gone", **settings)
    with pytest.raises(DataError, match=r"gone: no such folder. .* Set data.encoder"):
        gone.prepare(state)


def test_another_process_loads_the_encoder_itself(folder: Path) -> None:
    encoder = ContextualEncoder(folder, ContextOptions())
    assert encoder.size == 8
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy._loaded is None
    assert copy.size == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder_layers": [3]}, "names 3, but .* has the hidden states 0 to 2"),
        ({"encoder_layers": []}, "data.encoder_layers is empty"),
    ],
)
def test_layers_that_are_not_there_are_refused(
    settings: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        data(tmp_path, folder, **settings)


def test_a_folder_without_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"broken: transformers cannot load an encoder"):
        data(tmp_path, broken)


def test_wrong_choices_name_the_right_ones() -> None:
    faults = [*setting_faults({"encoder_join": "sum", "encoder_layers": -1})]
    assert "data.encoder_layers is -1, but it must be a list of whole numbers" in faults[0]
    assert "data.encoder_join is 'sum', but it is one of concat, mean" in faults[1]


def test_a_damaged_store_is_computed_again(folder: Path, tmp_path: Path) -> None:
    first = features(data(tmp_path, folder)).clone()
    (stored,) = (tmp_path / "cache").glob("words-*.npy")
    stored.write_bytes(stored.read_bytes()[:100])
    assert torch.equal(features(data(tmp_path, folder)), first)
