"""WordVectors: initial vectors for the words of a corpus, out of a file.

Files of GloVe, fastText (.vec) and word2vec as text are read as a stream. A word may have several
spellings in them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.features.vocabulary import count_words
from graphfold.datasets.files.text_files import open_bytes
from graphfold.datasets.words.word_features import WordFeatures
from graphfold.errors import DataError, count_of

if TYPE_CHECKING:
    from graphfold.datasets.features.feature_spec import FeatureSpec
    from graphfold.datasets.settings import DataSettings

#: The Penn Treebank's names of characters that its own format needs, or that typewriters lack:
#: Bies et al. (1995), section 2.1.
ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def unescaped(word: str) -> str:
    """The word without the Penn Treebank's escapes: `(` for `-LRB-`, `/` for `\\/`."""
    # In upper case, since `lowercase` may have changed the escape.
    return ESCAPED.get(word.upper(), word.replace("\\/", "/").replace("\\*", "*"))


def spellings(word: str) -> Iterator[str]:
    """The spellings under which a word is looked up, best first, each once.

    The word itself, the same without the Penn Treebank's escapes, and this in lower case.
    """
    plain = unescaped(word)
    yield from dict.fromkeys((word, plain, plain.lower()))


Vector = npt.NDArray[np.float32]

#: No line of a file of vectors is longer.
LONGEST_LINE = 1 << 20


@dataclass
class FoundVectors:
    """The vectors of some words in a file.

    Args:
        size: how many numbers a vector has.
        vectors: word -> its vector; the first one of a word that occurs twice.
        num_words: how many words the file has.
    """

    size: int
    vectors: dict[str, Vector] = field(default_factory=dict)
    num_words: int = 0


def find_vectors(path: Path, words: Collection[str]) -> FoundVectors:
    """The vectors of some words, read in constant memory.

    A line is a word and its numbers between blanks. The first line may say how many words and
    numbers there are (fastText .vec, word2vec as text) or not (GloVe). The file may be gzipped. A
    word may hold blanks: its numbers are the last ones of the line.

    Args:
        path: the file.
        words: the words to look for.

    Raises:
        DataError: with the line, if the file cannot be read, is of another kind, is cut off, or a
            vector has another size or something that is no number.
    """
    wanted = {word.encode(): word for word in words}
    with open_bytes(path) as file:
        try:
            first = file.readline(LONGEST_LINE).removeprefix(b"\xef\xbb\xbf")
            header = _header(first)
            count, size = header or (None, len(first.split()) - 1)
            if size < 1 or (header is None and _vector(first, size) is None):
                fault = "holds no word vectors: its first line is no word and numbers"
                raise _fault(path, f"{fault}. Save them as text, as GloVe does", 1)
            result = FoundVectors(size)
            rest = iter(partial(file.readline, LONGEST_LINE), b"")
            lines = rest if header else chain([first], rest)
            for number, line in enumerate(lines, 2 if header else 1):
                if line.strip():
                    _add(path, result, wanted, number, line)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _fault(path, "the gzip file is damaged or cut off. Download it again") from error
    if count is not None and result.num_words != count:
        fault = f"promises {count} words, but holds {result.num_words}"
        raise _fault(path, f"{fault}. It is cut off or damaged: download it again")
    return result


def _header(line: bytes) -> tuple[int, int] | None:
    """The two numbers, words and width, in a first line that holds nothing else."""
    fields = line.split()
    if len(fields) == 2 and all(item.isdigit() and len(item) < 12 for item in fields):
        return int(fields[0]), int(fields[1])
    return None


def _add(
    path: Path, result: FoundVectors, wanted: Mapping[bytes, str], number: int, line: bytes
) -> None:
    """Counts a line, and stores its vector if the word is wanted."""
    size, text = result.size, line.rstrip(b" \r\n").replace(b"\t", b" ")
    num_blanks = text.count(b" ")  # only ASCII ones: others may belong to a word
    if num_blanks < size:
        fault = f"the line has {num_blanks} numbers after its word, and not {size}"
        raise _fault(path, f"{fault}. Correct the file, or save it as text", number)
    result.num_words += 1
    word = wanted.get(text.split(b" ", 1)[0] if num_blanks == size else text.rsplit(b" ", size)[0])
    if word is None or word in result.vectors:
        return
    vector = _vector(text, size)
    if vector is None:
        fault = f"the line has something other than {size} finite numbers after its word"
        raise _fault(path, f"{fault}. Correct the file", number)
    result.vectors[word] = vector


def _vector(text: bytes, size: int) -> Vector | None:
    """The last `size` numbers of a line; None unless all of them are finite numbers."""
    fields = text.rstrip().replace(b"\t", b" ").rsplit(b" ", size)[1:]
    try:
        with np.errstate(over="ignore"):
            vector = np.array([float(item) for item in fields], dtype=np.float32)
    except ValueError:
        return None
    return vector if len(vector) == size and np.isfinite(vector).all() else None


def _fault(path: Path, fault: str, line: int | None = None) -> DataError:
    return DataError.in_file(path, f"{fault}.", line)


#: Words without a vector begin anywhere from -0.05 to 0.05: Tai et al. (2015), section 5.2.
UNKNOWN_RANGE = 0.05


@dataclass(frozen=True)
class WordVectors:
    """Vectors of some words out of a file.

    Args:
        path: the file.
        size: how many numbers a vector has.
        vectors: word, as the corpus spells it -> its vector.
        note: a sentence for the user about the share of words with a vector.
    """

    path: Path
    size: int
    vectors: Mapping[str, Vector]
    note: str

    def embeddings(self, words: Sequence[str]) -> Tensor:
        """[num_words + 1, size] an embedding for each id of a vocabulary; id 0 is unknown.

        A word that the file lacks, and the unknown one, has a random one, from torch's generator.

        Args:
            words: the words of the ids from 1 on.
        """
        table = torch.empty(len(words) + 1, self.size).uniform_(-UNKNOWN_RANGE, UNKNOWN_RANGE)
        for number, word in enumerate(words, 1):
            if word in self.vectors:
                table[number] = torch.from_numpy(self.vectors[word])
        return table


def read_vectors(path: Path, written: Mapping[str, int], lowercase: bool = False) -> WordVectors:
    """The vectors of the words of a corpus.

    Each word is looked up by its `spellings`. If several words are one in lower case, the most
    frequent comes first.

    Args:
        path: a file as `find_vectors` reads it.
        written: word of the corpus -> how often it occurs.
        lowercase: whether the words of the result are in lower case.

    Raises:
        DataError: if the file cannot be used, or has none of the words.
    """
    file = find_vectors(path, {spelling for word in written for spelling in spellings(word)})
    forms: dict[str, list[str]] = {}  # word -> its forms in the corpus, the most frequent first
    for form in sorted(written, key=lambda form: -written[form]):
        forms.setdefault(form.lower() if lowercase else form, []).append(form)
    counts = {word: sum(written[form] for form in group) for word, group in forms.items()}
    vectors = {}
    for word, group in forms.items():
        matches = (s for form in group for s in spellings(form) if s in file.vectors)
        if (spelling := next(matches, None)) is not None:
            vectors[word] = file.vectors[spelling]
    if not vectors:
        raise DataError.in_file(
            path,
            f"none of the {len(counts)} words of the data is among its {file.num_words}. "
            "Give vectors of the same language.",
        )
    tokens = sum(counts[word] for word in vectors) / max(sum(counts.values()), 1)
    note = (
        f"vectors of {file.size} numbers for {len(vectors)} of {count_of(len(counts), 'word')} "
        f"({len(vectors) / len(counts):.1%}), which are {tokens:.1%} of the tokens, from {path}"
    )
    return WordVectors(path, file.size, vectors, note)


def learn_words(
    spec: FeatureSpec, dag: TypedDAG, words: tuple[str, str], settings: DataSettings
) -> tuple[FeatureSpec, WordVectors | None]:
    """Adds word features to the spec; also returns initial vectors, if the settings name a file.

    With vectors, the vocabulary has the words of the training part and, after them, all words of
    the data with a vector.

    Args:
        spec: learnt from the training part.
        dag: all records, as read.
        words: the node type and the column of the words.
        settings: `vectors` and `characters` are read.

    Raises:
        DataError: if the file of vectors cannot be used.
    """
    features = WordFeatures(*words, has_characters=settings.characters)
    vectors = None
    if settings.vectors is not None:
        vectors = find_word_vectors(spec, dag, words, Path(settings.vectors))
        key = (f"type:{words[0]}", words[1])
        vocabulary = spec.vocabularies[key].with_words(sorted(vectors.vectors))
        spec = replace(spec, vocabularies={**spec.vocabularies, key: vocabulary})
        features = replace(features, vector_size=vectors.size)
    return replace(spec, words=features), vectors


def find_word_vectors(
    spec: FeatureSpec, dag: TypedDAG, words: tuple[str, str], path: Path
) -> WordVectors:
    """The vectors of all words of the data, by the words of the vocabulary."""
    key = (f"type:{words[0]}", words[1])
    written = count_words(dag.columns[key[0]][key[1]], dag.dictionaries[key])
    return read_vectors(path.expanduser(), written, spec.vocabularies[key].lowercase)
