"""ContextualEncoder: features of words from an encoder of Hugging Face on disk, over sentences."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.words.encoder_folder import (
    folder_hash,
    load_encoder,
    longest_text,
    require_transformers,
)
from graphfold.datasets.words.pieces import Pieces, Window, windows
from graphfold.datasets.words.sentences import sentences
from graphfold.errors import ConfigError, DataError

#: Pieces that are encoded at once, padding among them.
BATCH_PIECES = 8192

#: Grows when features of the same encoder and words become others.
VERSION = 1


@dataclass(frozen=True)
class ContextOptions:
    """Choices of what is made of the hidden states of an encoder.

    Args:
        layers: which hidden states: 0 is the embeddings, 1 the first layer's, -1 the last one's.
        join: layers side by side ("concat") or their "mean".
        pieces: the vector of a word: the "mean" of its pieces or the "first" one.
    """

    layers: tuple[int, ...] = (-1,)
    join: Literal["concat", "mean"] = "concat"
    pieces: Literal["mean", "first"] = "mean"


class ContextualEncoder:
    """Computes a vector for each word of a sentence, without gradient.

    The words are cut into the encoder's pieces, see `Pieces`; a sentence that is too long for it is
    read in windows, see `windows`. Sentences of like length are encoded together.

    Args:
        folder: a model as `save_pretrained` writes it, with its tokenizer; code in it is not run.
        options: what is made of its hidden states.
        fingerprint: what `fingerprint` was when a model was trained with it; None if that is now.

    Attributes:
        fingerprint: the hash of the folder's files.
        empty_words: the words, of those encoded so far, that the tokenizer left nothing of.

    Raises:
        ConfigError: if transformers is not installed.
        DataError: if there is no such folder, or it is not the one that had this fingerprint.
    """

    def __init__(
        self, folder: Path, options: ContextOptions, fingerprint: str | None = None
    ) -> None:
        require_transformers()
        self.folder, self.options = folder, options
        self.fingerprint = folder_hash(folder)
        if fingerprint not in (None, self.fingerprint):
            raise DataError(
                f"{folder}: is not the encoder that the model was trained with: its files have "
                "changed. Find the folder with those files. Set data.encoder.",
                path=str(folder),
            )
        self.empty_words: set[str] = set()
        self._loaded: tuple[Any, Pieces] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the encoder, which another process loads from the folder if it needs it."""
        return {**self.__dict__, "_loaded": None}

    @property
    def size(self) -> int:
        """The width of a word's vector."""
        layers = len(self.options.layers) if self.options.join == "concat" else 1
        return layers * int(self._load()[0].config.hidden_size)

    def features(self, dag: TypedDAG, type_name: str, column: str, cache: Path | None) -> Tensor:
        """[num_words, size] float32, the vectors of all words, in node order.

        Args:
            dag: graphs of trees, with words as strings.
            type_name: the type of the words.
            column: the column of the words.
            cache: the folder where they are kept, from which they are mapped; None to keep them in
                memory alone.
        """
        words = dag.strings(f"type:{type_name}", column)
        rows = [sentence.tolist() for sentence in sentences(dag, type_name)]
        if cache is None:
            values = np.zeros((len(words), self.size), dtype=np.float32)
            self._encode(words, rows, values)
            return torch.from_numpy(values)
        path = cache / f"words-{self._key(words, rows)}.npy"
        kept = _read(path)
        if kept is None:
            with storing(cache):
                cache.mkdir(parents=True, exist_ok=True)
                folder = tempfile.TemporaryDirectory(prefix=".encoding-", dir=cache)
            with folder as name:
                whole, shape = Path(name) / "whole.npy", (len(words), self.size)
                with storing(cache):
                    values = np.lib.format.open_memmap(whole, "w+", np.float32, shape)
                self._encode(words, rows, values)
                with storing(cache):
                    values.flush()
                    kept = np.load(whole, mmap_mode="c")
                    os.replace(whole, path)  # the map of the old name stays valid
            self._loaded = None  # a corpus is encoded once, and training needs the memory
        return torch.from_numpy(kept)

    def _key(self, words: Sequence[str | None], rows: Sequence[Sequence[int]]) -> str:
        facts = [VERSION, self.fingerprint, asdict(self.options), words, rows]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    @torch.inference_mode()
    def _encode(
        self, words: Sequence[str | None], rows: Sequence[Sequence[int]], values: Any
    ) -> None:
        """Writes the vectors of all words into the rows of an array."""
        model, pieces = self._load()
        length = longest_text(model, pieces.tokenizer) - len(pieces.before) - len(pieces.after)
        if length < 1:
            raise DataError(f"{self.folder}: its encoder reads no text of any length.")
        found: list[Window] = []
        for sentence in rows:
            ids = pieces.of([words[row] for row in sentence])
            found += windows(ids, sentence, length, self.options.pieces == "first")
        counts = np.zeros(len(words), dtype=np.int64)
        self.empty_words |= pieces.empty
        for batch in _shown(list(_batches(found))):
            for window, vectors in zip(batch, self._hidden(model, pieces, batch), strict=True):
                self._add(window, vectors[len(pieces.before) :], values, counts)
        values /= counts[:, None]

    def _add(self, window: Window, vectors: Any, values: Any, counts: Any) -> None:
        """Adds the vectors of the pieces that are taken from a window to those of their words."""
        taken = slice(window.start, window.stop)
        owner, own = np.array(window.owner[taken]), vectors[taken]
        is_used = owner >= 0
        np.add.at(values, owner[is_used], own[is_used])
        np.add.at(counts, owner[is_used], 1)

    def _hidden(self, model: Any, pieces: Pieces, batch: Sequence[Window]) -> Any:
        """[batch, longest, size] the joined layers, for the special pieces and the padding, too."""
        texts = [[*pieces.before, *window.ids, *pieces.after] for window in batch]
        longest = max(map(len, texts))
        padding = int(getattr(pieces.tokenizer, "pad_token_id", None) or 0)
        ids = torch.tensor([text + [padding] * (longest - len(text)) for text in texts])
        mask = torch.tensor([[1] * len(t) + [0] * (longest - len(t)) for t in texts])
        states = model(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            output_hidden_states=True,
        ).hidden_states
        chosen = [states[layer].float().cpu() for layer in self.options.layers]
        is_mean = self.options.join == "mean"
        joined = torch.stack(chosen).mean(0) if is_mean else torch.cat(chosen, dim=-1)
        return joined.numpy()

    def _load(self) -> tuple[Any, Pieces]:
        """The encoder and what cuts words for it; they are loaded once."""
        if self._loaded is None:
            model, tokenizer = load_encoder(self.folder)
            self._check_layers(int(model.config.num_hidden_layers) + 1)
            self._loaded = model, Pieces(tokenizer, str(self.folder))
        return self._loaded

    def _check_layers(self, count: int) -> None:
        """Raises ConfigError for a layer that the encoder lacks."""
        for layer in self.options.layers:
            if not -count <= layer < count:
                raise ConfigError(
                    f"data.encoder_layers names {layer}, but {self.folder} has the hidden states "
                    f"0 to {count - 1}. Choose some of them, or count from -1 back."
                )


def _read(path: Path) -> Any:
    """The stored vectors, mapped into memory; None if there are none, or they are damaged."""
    try:
        # Copied on write: torch warns of memory that may not be written to.
        return np.load(path, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None


def _shown(batches: Sequence[list[Window]]) -> Iterable[list[Window]]:
    """The batches, with a bar on a terminal's standard error where there are several."""
    if len(batches) < 2 or not sys.stderr.isatty():
        return batches
    from rich.console import Console
    from rich.progress import track

    return track(batches, "encoding words", console=Console(stderr=True), transient=True)


def _batches(found: Sequence[Window]) -> Iterator[list[Window]]:
    """The windows by length, the longest first, about `BATCH_PIECES` at once."""
    batch: list[Window] = []
    for window in sorted(found, key=lambda window: -len(window.ids)):
        if batch and len(batch[0].ids) * (len(batch) + 1) > BATCH_PIECES:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
