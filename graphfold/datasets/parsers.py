"""Parsers: raw sentences become trees, by a library that is installed.

spaCy gives dependency trees, Stanza those and constituency trees, benepar (the Berkeley neural
parser, within spaCy) constituency trees.
"""

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
    parser = PARSERS[library]
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


class SpacyParser(Parser):
    """Dependency trees by a pipeline of spaCy, https://spacy.io.

    Args:
        model: a package with a pipeline, or its folder; None for en_core_web_sm.
        text_format: "conllu".

    Raises:
        ConfigError: if spaCy or the pipeline is not installed, or the pipeline does not parse.
    """

    library = "spacy"
    formats = ("conllu",)

    def __init__(self, model: str | None, text_format: str) -> None:
        spacy, name = import_library("spacy"), model or "en_core_web_sm"
        try:
            self.pipeline = spacy.load(name)
        except (OSError, ImportError, ValueError) as error:
            raise ConfigError(
                f"--parser spacy:{name}: spaCy cannot load that pipeline ({error}). Install it: "
                f"python -m spacy download {name}"
            ) from error
        if "parser" not in self.pipeline.pipe_names:
            raise ConfigError(
                f"--parser spacy:{name}: the pipeline has no parser, only "
                f"{', '.join(self.pipeline.pipe_names) or 'a tokenizer'}. Name one that parses."
            )

    def parse(self, texts: Sequence[str]) -> Iterator[list[Any]]:
        """See `Parser.parse`."""
        for doc in self.pipeline.pipe(texts):
            yield list(doc.sents)


_PROCESSORS = {
    "conllu": "tokenize,mwt,pos,lemma,depparse",
    "brackets": "tokenize,mwt,pos,constituency",
}


class StanzaParser(Parser):
    """Trees by a pipeline of Stanza (Qi et al. 2020, https://arxiv.org/abs/2003.07082).

    Args:
        model: the code of a language; None for "en". Models are not downloaded.
        text_format: "conllu" or "brackets".

    Raises:
        ConfigError: if Stanza or the models of the language are not installed.
    """

    library = "stanza"
    formats = ("conllu", "brackets")

    def __init__(self, model: str | None, text_format: str) -> None:
        stanza, language = import_library("stanza"), model or "en"
        try:
            self.pipeline = stanza.Pipeline(
                language,
                processors=_PROCESSORS[text_format],
                download_method=None,
                verbose=False,
            )
        except Exception as error:  # it has its own kinds for each thing that may be missing
            raise ConfigError(
                f"--parser stanza:{language}: Stanza cannot load its models ({error}). Install "
                f"them: python -c \"import stanza; stanza.download('{language}')\""
            ) from error

    def parse(self, texts: Sequence[str]) -> Iterator[list[Any]]:
        """See `Parser.parse`."""
        for text in texts:
            yield list(self.pipeline(text).sentences)


class BeneparParser(Parser):
    """Constituency trees by benepar (Kitaev & Klein 2018, https://aclanthology.org/P18-1249).

    spaCy only divides the text into words and sentences, by the rules of the language that the
    model's name begins with: benepar_en3 reads English.

    Args:
        model: the name of a model; None for benepar_en3.
        text_format: "brackets".

    Raises:
        ConfigError: if benepar, spaCy or the model is not installed.
    """

    library = "benepar"
    formats = ("brackets",)

    def __init__(self, model: str | None, text_format: str) -> None:
        import_library("benepar")
        spacy, name = import_library("spacy"), model or "benepar_en3"
        try:
            self.pipeline = spacy.blank(name.removeprefix("benepar_")[:2])
            self.pipeline.add_pipe("sentencizer")
            self.pipeline.add_pipe("benepar", config={"model": name})
        except (OSError, ImportError, LookupError, ValueError) as error:
            raise ConfigError(
                f"--parser benepar:{name}: benepar cannot load that model ({error}). Install it: "
                f"python -c \"import benepar; benepar.download('{name}')\""
            ) from error

    def parse(self, texts: Sequence[str]) -> Iterator[list[Any]]:
        """See `Parser.parse`."""
        for doc in self.pipeline.pipe(texts):
            yield list(doc.sents)


#: Library -> its parser.
PARSERS: Mapping[str, type[Parser]] = {
    "spacy": SpacyParser,
    "stanza": StanzaParser,
    "benepar": BeneparParser,
}
