"""The folder of an encoder of Hugging Face: its fingerprint, its model and its tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from graphfold.datasets.storage.fingerprint import file_hash
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
