"""WordFeatures: the characters of words, as codes of their beginnings, ends and shapes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.dag.schema import MISSING, Column

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
    """[num_words, NUM_CODES] codes of the spelling of each word.

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
    """The word with X, x and d for runs of capitals, other letters and digits."""
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


@dataclass(frozen=True)
class WordFeatures:
    """The features of words beside their ids.

    Args:
        type_name: the node type of the words.
        column: the column of the words.
        vector_size: the width of the initial vectors of their embeddings; None without vectors.
        has_characters: whether the words have codes of their characters.
    """

    type_name: str
    column: str
    vector_size: int | None = None
    has_characters: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are added."""
        return (column(),) if self.has_characters else ()

    def encode(self, dag: TypedDAG) -> dict[str, Tensor]:
        """The values of these columns, a row for each word.

        Args:
            dag: graphs with words as strings.
        """
        if not self.has_characters:
            return {}
        space = f"type:{self.type_name}"
        codes = character_codes(dag.dictionaries[space, self.column])
        missing = codes.new_full((1, codes.shape[1]), MISSING)  # code -1 picks the last row
        return {NAME: torch.cat([codes, missing])[dag.columns[space][self.column]]}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> WordFeatures:
        """The features that `to_dict` describes."""
        return WordFeatures(**data)
