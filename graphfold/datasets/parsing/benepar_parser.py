"""BeneparParser: constituency trees by the Berkeley neural parser, within spaCy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfold.datasets.parsing.parser import Parser, import_library
from graphfold.errors import ConfigError


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
