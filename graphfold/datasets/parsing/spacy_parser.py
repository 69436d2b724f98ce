"""SpacyParser: dependency trees by spaCy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfold.datasets.parsing.parser import Parser, import_library
from graphfold.errors import ConfigError


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
