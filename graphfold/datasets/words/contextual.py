"""ContextualEncoder: features of words from an encoder of Hugging Face on disk, over sentences.

From top to bottom: the folder of an encoder (fingerprint, model, tokenizer), the sentences of the
trees, their words as the encoder cuts them, and its states of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.storage.cache import storing
from graphfold.datasets.storage.fingerprint import file_hash
from graphfold.datasets.words.vectors import unescaped
from graphfold.errors import ConfigError, DataError

#: The files of a folder that decide what its encoder computes.
FILES = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")


def require_transformers() -> None:
    """Raises ConfigError if transformers is not installed; it is not imported yet."""
    if find_spec("transformers") is None:
        raise ConfigError(
            "data.encoder needs the library transformers. Install it with "
            "pip install 'graphfold[text]', or leave data.encoder out."
        )


def folder_hash(folder: Path) -> str:
    """The hash of the files that decide what an encoder computes.

    Raises:
        DataError: if it is no such folder.
    """
    if not (folder / "config.json").is_file():
        fault = "has no config.json" if folder.is_dir() else "no such folder"
        raise DataError(
            f"{folder}: {fault}. An encoder of Hugging Face is read from a folder as "
            "save_pretrained writes it. Set data.encoder.",
            path=str(folder),
        )
    files = sorted({file for pattern in FILES for file in folder.glob(pattern)})
    lines = [f"{file.name} {file_hash(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def load_encoder(folder: Path) -> tuple[Any, Any]:
    """The model in single precision, on the GPU if there is one, and its tokenizer.

    Nothing is downloaded, and no code in the folder is run. Of a model with encoder and decoder it
    is the encoder.

    Raises:
        DataError: if they cannot be loaded, or weights are missing.
    """
    with _quiet():
        return _load(folder)


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        # The blank before a word belongs to its pieces in some vocabularies.
        tokenizer = AutoTokenizer.from_pretrained(folder, add_prefix_space=True, **local)
        model, info = AutoModel.from_pretrained(folder, output_loading_info=True, **local)
    except Exception as error:  # of a damaged folder any part may fail in any way
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            f"{folder}: transformers cannot load an encoder and its tokenizer from it ({reason}). "
            "Give a folder that save_pretrained wrote.",
            path=str(folder),
        ) from error
    # The pooler stands above the hidden states: nothing is taken from it.
    missing = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise DataError(
            f"{folder}: weights of its encoder are missing, such as {missing[0]}. Give a folder "
            "with all of them.",
            path=str(folder),
        )
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.float().to(device).eval(), tokenizer


def longest_text(model: Any, tokenizer: Any) -> int:
    """The most pieces that an encoder can read at once, special ones among them."""
    limits = [int(getattr(tokenizer, "model_max_length", None) or 1 << 30)]
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        limits.append(positions)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # Where padding has a position of its own, the first piece comes after it (RoBERTa).
            used = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - used)
    return min(limits)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lets transformers load without its bars and remarks, and leaves them as they were."""
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


Ints = npt.NDArray[np.int64]


def sentences(dag: TypedDAG, type_name: str) -> list[Ints]:
    """The words of each sentence, as positions among the nodes of their type.

    A sentence is a tree: what is below a node that no other reads. So a pair of sentences in one
    graph is two, and no word reads those of another sentence.

    Args:
        dag: graphs of trees.
        type_name: the type of the words.
    """
    words = dag.nodes_of_type(type_name).numpy()
    if not len(words):
        return []
    root = _roots(dag)[words]
    order = np.argsort(root, kind="stable")
    bounds = np.flatnonzero(np.diff(root[order])) + 1
    return np.split(order, bounds)


def _roots(dag: TypedDAG) -> Ints:
    """[num_nodes] the root of the tree that each node is in; the way up doubles in each round."""
    above: Ints = np.arange(dag.num_nodes)
    reader = np.repeat(above, dag.input_ptr.diff().numpy())
    child = dag.input_index.numpy()
    above = above.copy()
    above[child[child >= 0]] = reader[child >= 0]
    while not np.array_equal(further := above[above], above):
        above = further
    return above


class Window(NamedTuple):
    """A stretch of the pieces of a sentence that an encoder reads at once.

    Args:
        ids: the pieces.
        owner: the row of the word that each piece counts for; -1 for none.
        start: the first of those that are taken from it; others are context.
        stop: the one after the last.
    """

    ids: list[int]
    owner: list[int]
    start: int
    stop: int


class Pieces:
    """Cuts words into the pieces of a tokenizer, each word once.

    A word that is missing is the tokenizer's mask, if it has one. A word that the tokenizer leaves
    nothing of, such as a zero-width blank, is its unknown piece.

    Args:
        tokenizer: of Hugging Face.
        folder: where it is from, for messages.

    Attributes:
        before, after: the pieces that the encoder expects around a sentence.
        empty: the words that nothing was left of.
    """

    def __init__(self, tokenizer: Any, folder: str) -> None:
        self.tokenizer = tokenizer
        self.folder = folder
        self.known: dict[str | None, list[int]] = {}
        self.empty: set[str] = set()
        self.before, self.after = self._surroundings()

    def of(self, words: Sequence[str | None]) -> list[list[int]]:
        """The pieces of each word; at least one."""
        new = [word for word in dict.fromkeys(words) if word not in self.known]
        written = [word for word in new if word is not None]
        cut = self._cut([unescaped(word) for word in written]) if written else []
        for word, ids in zip(written, cut, strict=True):
            if not ids:
                self.empty.add(word)
            self.known[word] = ids or [self._spare("unk_token_id", "a word without a piece")]
        if None in new:
            self.known[None] = [self._spare("mask_token_id", "a missing word")]
        return [self.known[word] for word in words]

    def _cut(self, words: Sequence[str], special: bool = False) -> list[list[int]]:
        """The pieces of words, each in a text of its own."""
        # A text of one word that is split already: it is then cut as it would be inside of a text.
        texts = [[word] for word in words]
        cut = self.tokenizer(texts, is_split_into_words=True, add_special_tokens=special)
        return [list(map(int, ids)) for ids in cut["input_ids"]]

    def _surroundings(self) -> tuple[list[int], list[int]]:
        """The special pieces before and after a text, seen around one of a word."""
        (bare,), (whole,) = self._cut(["a"]), self._cut(["a"], special=True)
        for start in range(len(whole) - len(bare) + 1):
            if bare and whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        return [], []

    def _spare(self, name: str, what: str) -> int:
        for item in (name, "unk_token_id"):
            if (number := getattr(self.tokenizer, item, None)) is not None:
                return int(number)
        raise DataError(
            f"{self.folder}: its tokenizer has neither an unknown piece nor a mask for {what}. "
            "Correct the data, or give another encoder."
        )


def windows(
    ids: Sequence[Sequence[int]], rows: Sequence[int], length: int, only_first: bool = False
) -> Iterator[Window]:
    """The windows of a sentence: one if it is short enough, else overlapping ones.

    Neighbours share half of their pieces; each piece is taken from the window in whose middle it
    is, so that it has at least a quarter of a window around it on both sides.

    Args:
        ids: the pieces of each word.
        rows: the row of each word.
        length: the most pieces of a window.
        only_first: whether a word's first piece alone counts for it.
    """
    pieces = [piece for word in ids for piece in word]
    owner = [
        -1 if only_first and place else row
        for row, word in zip(rows, ids, strict=True)
        for place in range(len(word))
    ]
    total, step = len(pieces), max(length // 2, 1)
    starts = [0] if total <= length else [*range(0, total - length, step), total - length]
    taken = 0
    for number, start in enumerate(starts):
        stop = start + length
        is_last = number == len(starts) - 1
        # Up to the middle of what this window shares with the next one.
        end = total if is_last else (starts[number + 1] + stop + 1) // 2
        yield Window(pieces[start:stop], owner[start:stop], taken - start, end - start)
        taken = end


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
