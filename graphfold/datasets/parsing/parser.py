"""Parser: raw sentences become trees, by a library that is installed."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.text_files import at_least_one, scan_lines
from graphfold.errors import ConfigError, RecordError, count_of, did_you_mean

#: Library -> its parser's class, which is imported when it is asked for.
PARSERS: Mapping[str, str] = {
    "spacy": "graphfold.datasets.parsing.spacy_parser:SpacyParser",
    "stanza": "graphfold.datasets.parsing.stanza_parser:StanzaParser",
    "benepar": "graphfold.datasets.parsing.benepar_parser:BeneparParser",
}

#: Lines that a library gets at once.
_BATCH = 64


class Parser(ABC):
    """Parses raw sentences into objects that an adapter reads, see `Adapter.record_of`.

    Args:
        model: the name of the library's model; None for its usual English one.
        text_format: a name of `formats`.

    Attributes:
        library: its name, as in `PARSERS` and for pip.
        formats: the `Adapter.text_format`s of what it finds: "conllu" for dependency trees,
            "brackets" for constituency trees.

    Raises:
        ConfigError: if the library or its model is not installed.
    """

    library: str
    formats: tuple[str, ...]

    @abstractmethod
    def __init__(self, model: str | None, text_format: str) -> None: ...

    @abstractmethod
    def parse(self, texts: Sequence[str]) -> Iterator[list[Any]]:
        """For each text, its sentences with their trees."""

    def parse_one(self, text: str) -> Any:
        """The one sentence of a text.

        Raises:
            RecordError: if it has none or several.
        """
        (sentences,) = self.parse([text])
        if len(sentences) != 1:
            found = f"{self.library} finds {count_of(len(sentences), 'sentence')} in the text"
            raise RecordError(found, "Give one at a time.")
        return sentences[0]


def make_parser(name: str, text_format: str | None) -> Parser:
    """The parser that is called LIBRARY or LIBRARY:MODEL.

    Args:
        name: its name.
        text_format: what the run reads; see `Adapter.text_format`.

    Raises:
        ConfigError: if there is no such parser, it gives no trees of that kind, or its library or
            model is not installed.
    """
    library, _, model = name.partition(":")
    if library not in PARSERS:
        raise ConfigError(
            f"--parser names '{library}'.{did_you_mean(library, PARSERS)} Use one of "
            f"{', '.join(PARSERS)}, with a model as in spacy:en_core_web_sm."
        )
    module, _, class_name = PARSERS[library].partition(":")
    parser: type[Parser] = getattr(importlib.import_module(module), class_name)
    if text_format not in parser.formats:
        raise ConfigError(
            f"--parser {library} gives trees in {' or '.join(parser.formats)}, but the run reads "
            + (f"{text_format}. {_others(text_format)}" if text_format else "no parsed sentences.")
        )
    return parser(model or None, str(text_format))


def parse_file(parser: Parser, adapter: Adapter, path: Path) -> Iterator[Record]:
    """The records of a text file, one for each sentence of each line; blank lines have none.

    It is read in constant memory.

    Args:
        parser: what parses the lines.
        adapter: what reads the trees.
        path: the file.

    Raises:
        DataError: if the file cannot be read, or has no sentence.
    """
    yield from at_least_one(_records(parser, adapter, path), path, "sentences")


def _records(parser: Parser, adapter: Adapter, path: Path) -> Iterator[Record]:
    lines = (line for line in scan_lines(path) if line.text.strip())
    while batch := list(islice(lines, _BATCH)):
        parsed = parser.parse([line.text.strip() for line in batch if line.fault is None])
        for line in batch:
            if line.fault is not None:
                yield Record(line.number, None, line.fault)
                continue
            for sentence in next(parsed):
                yield _record(adapter, line.number, sentence)


def _record(adapter: Adapter, line: int, sentence: Any) -> Record:
    try:
        return replace(adapter.record_of(sentence), line=line)
    except RecordError as error:
        return Record(line, None, error)


def import_library(name: str) -> Any:
    """A library that need not be installed.

    Raises:
        ConfigError: if it is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"--parser {name} needs the package {name}, which cannot be imported ({error}). "
            f"Install it: pip install {name}"
        ) from error


def _others(text_format: str) -> str:
    fitting = {"conllu": "spacy or stanza", "brackets": "stanza or benepar"}
    return f"Use {fitting[text_format]}." if text_format in fitting else ""
