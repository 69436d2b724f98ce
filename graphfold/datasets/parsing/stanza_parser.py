"""StanzaParser: dependency and constituency trees by Stanza."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfold.datasets.parsing.parser import Parser, import_library
from graphfold.errors import ConfigError

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
