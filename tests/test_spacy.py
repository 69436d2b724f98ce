"""The component of spaCy: its answers are those of the model for the same sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from training.tiny_runs import conllu, train

import graphfold
from graphfold.errors import CheckpointError, ConfigError, DataError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

spacy = pytest.importorskip("spacy", reason="spacy is not installed")

from graphfold.spacy import make_component  # noqa: E402

HEADS = {"the film is good": [1, 3, 3, 3], "a dull film": [2, 2, 2]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spacy")
    rng = Random(0)
    (folder / "words.conllu").write_text("\n".join(conllu(rng) for _ in range(12)))
    words = ["data=conllu", f"data.path={folder}/words.conllu", "model.hidden_size=8"]
    return train(folder / "run", *words, "trainer.max_epochs=1")


def parse(doc: Any) -> Any:
    """The same text with the heads of HEADS; it is one sentence, or several with full stops."""
    words: list[str] = []
    heads: list[int] = []
    for text in filter(None, doc.text.split(" . ")):
        if words:
            words.append(".")
            heads.append(len(heads) - 1)
        heads += [len(words) + head for head in HEADS[text]]
        words += text.split()
    return spacy.tokens.Doc(doc.vocab, words, heads=heads, deps=["dep"] * len(words))


def pipeline(run: Path) -> Any:
    spacy.language.Language.component("heads", func=parse)
    nlp = spacy.blank("en")
    nlp.add_pipe("heads")
    nlp.add_pipe("graphfold", config={"run": str(run)})
    return nlp


def test_answers_are_those_of_the_model(run: Path) -> None:
    nlp, model = pipeline(run), graphfold.load(run)
    doc = nlp("the film is good . a dull film")
    sentences = list(doc.sents)
    assert len(sentences) == 2
    expected = [{k: v for k, v in a.items() if k != "line"} for a in model.predict(sentences)]
    assert doc._.graphfold == expected
    assert sentences[1]._.graphfold["reason"] == ""
    assert [token._.graphfold["text"] for token in doc] == [token.text for token in doc]
    nodes = [node for answer in expected for node in answer["nodes"]]
    assert [token._.graphfold for token in doc] == nodes
    assert {"prediction", "probabilities"} <= nodes[0].keys()


def test_many_documents_are_predicted_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = pipeline(run)
    component = nlp.get_pipe("graphfold")
    texts = [*HEADS, "the film is good . a dull film", ""] * 3
    alone = [nlp(text)._.graphfold for text in texts]
    sizes = []
    predict = component.model.predict

    def counted(items: list[Any]) -> list[dict[str, Any]]:
        sizes.append(len(items))
        found: list[dict[str, Any]] = predict(items)
        return found

    monkeypatch.setattr(component.model, "predict", counted)
    together = [doc._.graphfold for doc in nlp.pipe(texts, batch_size=8)]
    assert sizes == [8, 4]
    for one, many in zip(alone, together, strict=True):
        assert [len(answer["nodes"]) for answer in one] == [len(a["nodes"]) for a in many]
        for a, b in zip(one, many, strict=True):
            for node, other in zip(a["nodes"], b["nodes"], strict=True):
                assert node["probability"] == pytest.approx(other["probability"], abs=1e-5)
    assert together[3] == []


def test_it_is_kept_with_documents_and_pipelines(run: Path, tmp_path: Path) -> None:
    nlp = pipeline(run)
    doc = nlp("a dull film")
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert again._.graphfold == doc._.graphfold
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline")("a dull film")._.graphfold == doc._.graphfold


def test_a_sentence_that_cannot_be_read_has_a_reason(run: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("graphfold", config={"run": str(run)})
    (answer,) = nlp("not parsed")._.graphfold
    assert answer["prediction"] is None
    assert answer["reason"].startswith("the spaCy text has no heads")


def test_wrong_use_is_refused(run: Path, tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    with pytest.raises(ConfigError, match="the component 'graphfold' names no run. Write nlp.add"):
        nlp.add_pipe("graphfold")
    with pytest.raises(CheckpointError, match="no such run"):
        make_component(nlp, "graphfold", str(tmp_path / "nothing"))
    nlp.add_pipe("graphfold", config={"run": str(run)})
    with pytest.raises(DataError, match="the text has no sentences. Add a component that finds"):
        nlp("not parsed")


def test_spacy_finds_it_without_an_import(run: Path, tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    named = project["project"]["entry-points"]["spacy_factories"]["graphfold"]
    installed = tmp_path / "named-1.dist-info"  # as pip writes it
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[spacy_factories]\ngraphfold = {named}\n")
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "import spacy\n"
        f"nlp = spacy.blank('en').add_pipe('graphfold', config={{'run': {str(run)!r}}})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
