"""WordFeatures: the columns that words get beside their ids.

One are the characters of a word: its beginning, its end and its shape, as codes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.dag.schema import MISSING, Column
from graphfold.datasets.words.contextual import ContextOptions, ContextualEncoder
from graphfold.errors import count_of

#: Beginnings and ends of 1 to so many characters.
LONGEST = 4

#: The codes of each beginning, each end, and the shape.
BUCKETS = 2048

#: The name of the column, and how many codes a word has.
NAME, NUM_CODES = "characters", 2 * LONGEST + 1


def column() -> Column:
    """The column that holds the codes."""
    return Column(NAME, "int64", (NUM_CODES,), size=BUCKETS)


def character_codes(words: Sequence[str]) -> Tensor:
    """[num_words, NUM_CODES] what each word is spelt like.

    The features of Ratnaparkhi (1996), https://aclanthology.org/W96-0213: the first 1 to 4
    characters in lower case, the last 1 to 4, and the shape (`Xx-d` for `Covid-19`), which tells
    capitals, digits and hyphens. Each is hashed to one of `BUCKETS` codes, as in Weinberger et al.
    (2009), https://arxiv.org/abs/0902.2206, so that new words have known parts. A
    beginning or end that is longer than the word is missing.
    """
    codes = [_codes(word) for word in words]
    return torch.tensor(codes, dtype=torch.int64).view(-1, NUM_CODES)


def _codes(word: str) -> list[int]:
    lower = word.lower()
    lengths = range(1, LONGEST + 1)
    parts = [lower[:length] if length <= len(lower) else None for length in lengths]
    parts += [lower[-length:] if length <= len(lower) else None for length in lengths]
    hashed = [MISSING if part is None else _hash(part) for part in parts]
    return [*hashed, _hash(shape(word))]


def shape(word: str) -> str:
    """The word with X, x and d for capitals, other letters and digits; a run of one is one."""
    kinds = "".join(map(_kind, word))
    return re.sub(r"(.)\1+", r"\1", kinds, flags=re.DOTALL)


def _kind(character: str) -> str:
    if character.isupper() or character.istitle():
        return "X"
    if character.isalpha():
        return "x"
    return "d" if character.isdigit() else character


def _hash(part: str) -> int:
    return zlib.crc32(part.encode("utf-8", "surrogatepass")) % BUCKETS


#: The name of the column with features of a word in its sentence.
CONTEXT = "context"


@dataclass(frozen=True)
class Context:
    """The features of an encoder that a model was trained with.

    Args:
        options: what is made of its hidden states.
        fingerprint: of its files.
        size: the width of a word's vector.
    """

    options: ContextOptions
    fingerprint: str
    size: int


@dataclass(frozen=True, eq=False)
class WordFeatures:
    """The additions to the words of a corpus that a model reads.

    Args:
        type_name: the node type of the words.
        column: the column of the words.
        vector_size: the width of the vectors that their embeddings begin with, if they do.
        has_characters: whether they have codes of their characters.
        context: the encoder that gives them features, if one does.
        encoder: the same, where its folder is known.
    """

    type_name: str
    column: str
    vector_size: int | None = None
    has_characters: bool = False
    context: Context | None = None
    encoder: ContextualEncoder | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are added."""
        found = [column()] if self.has_characters else []
        if self.context is not None:
            found.append(Column(CONTEXT, "float32", (self.context.size,)))
        return tuple(found)

    def encode(self, dag: TypedDAG, cache: Path | None = None) -> dict[str, Tensor]:
        """The values of these columns, a row for each word.

        Args:
            dag: graphs with words as strings.
            cache: the folder where features of the encoder are kept; None to keep none.
        """
        found: dict[str, Tensor] = {}
        if self.has_characters:
            space = f"type:{self.type_name}"
            codes = character_codes(dag.dictionaries[space, self.column])
            missing = codes.new_full((1, codes.shape[1]), MISSING)  # code -1 picks the last row
            found[NAME] = torch.cat([codes, missing])[dag.columns[space][self.column]]
        if self.context is not None:
            assert self.encoder is not None, "at() says where the encoder is"
            found[CONTEXT] = self.encoder.features(dag, self.type_name, self.column, cache)
        return found

    @property
    def notes(self) -> list[str]:
        """Sentences about words that the encoder cannot read."""
        empty = sorted(self.encoder.empty_words) if self.encoder is not None else []
        if not empty:
            return []
        shown = ", ".join(map(repr, empty[:3])) + (", ..." if len(empty) > 3 else "")
        number = count_of(len(empty), "word")
        return [f"without a piece in the encoder, and unknown to it: {number} ({shown})"]

    def at(self, folder: Path) -> WordFeatures:
        """The same with the encoder in a folder.

        Raises:
            ConfigError: if transformers is not installed.
            DataError: if there is no encoder, or another one.
        """
        if self.context is None:
            return self
        encoder = ContextualEncoder(folder, self.context.options, self.context.fingerprint)
        return replace(self, encoder=encoder)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the encoder's folder is not among them."""
        context = None if self.context is None else asdict(self.context)
        names = ("type_name", "column", "vector_size", "has_characters")
        return {**{name: getattr(self, name) for name in names}, "context": context}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> WordFeatures:
        """The features that `to_dict` describes."""
        context = data["context"]
        if context is not None:
            options = context["options"]
            made = ContextOptions(**{**options, "layers": tuple(options["layers"])})
            context = Context(made, context["fingerprint"], context["size"])
        return WordFeatures(**{**data, "context": context})
