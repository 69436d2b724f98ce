"""A tiny random encoder with a tokenizer of a few pieces, as `save_pretrained` writes them."""

from __future__ import annotations

from pathlib import Path

import torch

PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "is", "good", "bad", "(", ")", "b", "##ri", "##ght", "##s", "##ly"),
)


def write_encoder(folder: Path, longest: int = 16, seed: int = 0) -> Path:
    """A BERT of two layers, 8 wide, that reads up to `longest` pieces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    codes = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(codes, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {f"{n}_token": f"[{n.upper()}]" for n in ("pad", "unk", "cls", "sep", "mask")}
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **special)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=longest,
    )
    logging.disable_progress_bar()
    whole.save_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    return folder
