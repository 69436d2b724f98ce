"""Raw sentences parsed by other libraries, which stand-ins replace here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphfold.datasets.adapter import read_records
from graphfold.datasets.parsers import PARSERS, make_parser, parse_file
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import ConlluAdapter
from graphfold.errors import ConfigError, DataError, RecordError


class Sentence(list[Any]):
    """Words of which each is the head of the next one."""

    def __init__(self, text: str) -> None:
        words = [
            SimpleNamespace(
                i=i,
                text=form,
                lemma_="",
                pos_="",
                tag_="",
                morph="",
                dep_="dep",
                whitespace_=" ",
                is_space=False,
            )
            for i, form in enumerate(text.split())
        ]
        for word, head in zip(words, [words[0], *words], strict=False):
            word.head = head
        super().__init__(words)
        self.text, self.sents, self.vocab = text, [self], None
        self._ = SimpleNamespace(
            has=lambda name: True, parse_string=f"(S {' '.join(f'(W {w.text})' for w in words)})"
        )

    @property
    def doc(self) -> Any:
        return SimpleNamespace(has_annotation=lambda name: True, sents=self.sents)


class Pipeline:
    """spaCy's, in as far as it is used; a sentence ends with a full stop."""

    def __init__(self, *names: str) -> None:
        self.pipe_names = [*names]

    def add_pipe(self, name: str, config: dict[str, str] | None = None) -> None:
        if config is not None and config["model"] != "benepar_en3":
            raise LookupError("no such model")
        self.pipe_names.append(name)

    def pipe(self, texts: list[str]) -> Iterator[Any]:
        for text in texts:
            yield SimpleNamespace(
                sents=[Sentence(part) for part in text.split(".") if part.strip()]
            )


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Pipeline:
        if name not in ("en_core_web_sm", "tagger"):
            raise OSError(f"Can't find model '{name}'")
        return Pipeline("tagger", *(["parser"] if name != "tagger" else []))

    module = ModuleType("spacy")
    module.load = load  # type: ignore[attr-defined]
    module.blank = lambda code: Pipeline()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setitem(sys.modules, "benepar", ModuleType("benepar"))


def forms(adapter: Any, records: list[Any]) -> list[list[str | None]]:
    dags = [read_records(adapter, Path(), [record]).dag for record in records]
    return [dag.strings("type:word", "form") for dag in dags]


@pytest.mark.usefixtures("spacy")
@pytest.mark.parametrize(
    ("name", "adapter"),
    [
        ("spacy", ConlluAdapter()),
        ("spacy:en_core_web_sm", ConlluAdapter()),
        ("benepar", BracketsAdapter(num_classes=5).without_targets()),
    ],
)
def test_every_sentence_of_a_line_is_a_record(name: str, adapter: Any, tmp_path: Path) -> None:
    path = tmp_path / "raw.txt"
    path.write_bytes(b"one dog . two cats\n \n\xff\nthree\n")
    records = list(parse_file(make_parser(name, adapter.text_format), adapter, path))
    assert [record.line for record in records] == [1, 1, 3, 4]
    assert [record.fault is None for record in records] == [True, True, False, True]
    good = [record for record in records if record.fault is None]
    assert forms(adapter, good) == [["one", "dog"], ["two", "cats"], ["three"]]
    parser = make_parser(name, adapter.text_format)
    assert forms(adapter, [adapter.record_of(parser.parse_one("a dog ."))]) == [["a", "dog"]]
    for text, count in (("a . b", "2 sentences"), (" ", "0 sentences")):
        with pytest.raises(RecordError, match=f"finds {count}"):
            parser.parse_one(text)
    path.write_text(" \n")
    with pytest.raises(DataError, match="holds no sentences"):
        list(parse_file(parser, adapter, path))


def test_stanza_is_asked_for_what_the_run_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def pipeline(language: str, **options: Any) -> Any:
        asked.append((language, options["processors"], options["download_method"]))
        if language != "en":
            raise FileNotFoundError("no resources")
        return lambda text: SimpleNamespace(sentences=[text])

    module = ModuleType("stanza")
    module.Pipeline = pipeline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stanza", module)
    parser = make_parser("stanza", "conllu")
    make_parser("stanza:en", "brackets")
    assert asked == [
        ("en", "tokenize,mwt,pos,lemma,depparse", None),
        ("en", "tokenize,mwt,pos,constituency", None),
    ]
    assert list(parser.parse(["a", "b"])) == [["a"], ["b"]]
    with pytest.raises(ConfigError, match=r"stanza:xx.*no resources.*stanza.download\('xx'\)"):
        make_parser("stanza:xx", "conllu")


@pytest.mark.usefixtures("spacy")
@pytest.mark.parametrize(
    ("name", "text_format", "message"),
    [
        ("spacyy", "conllu", "Did you mean 'spacy'. Use one of spacy, stanza, benepar"),
        ("spacy", "brackets", "trees in conllu, but the run reads brackets. Use stanza or benepar"),
        ("benepar", "conllu", "trees in brackets, but the run reads conllu. Use spacy or stanza"),
        ("spacy", None, "the run reads no parsed sentences"),
        ("spacy:none", "conllu", "cannot load that pipeline .*spacy download none"),
        ("spacy:tagger", "conllu", "the pipeline has no parser, only tagger"),
        ("benepar:none", "brackets", r"cannot load that model .*benepar.download\('none'\)"),
    ],
)
def test_what_cannot_parse_says_why(name: str, text_format: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_parser(name, text_format)


@pytest.mark.parametrize("library", PARSERS)
def test_a_library_that_is_not_installed_is_named(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    text_format = "brackets" if library == "benepar" else "conllu"
    with pytest.raises(ConfigError, match=f"pip install {library}"):
        make_parser(library, text_format)
