"""The component of spaCy gives each word the prediction of the run for its sentence."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from example_files import example
from training.tiny_runs import conllu, train

import graphfold

spacy = pytest.importorskip("spacy", reason="spacy is not installed")

SENTENCES = {"the film is good": [1, 3, 3, 3], "a dull film": [2, 2, 2]}


def parse(doc: Any) -> Any:
    """Two sentences with the heads of SENTENCES, as a parser of spaCy gives them."""
    words, heads = [], []
    for text, own in SENTENCES.items():
        heads += [len(words) + head for head in own]
        words += text.split()
    return spacy.tokens.Doc(doc.vocab, words, heads=heads, deps=["dep"] * len(words))


def test_words_have_the_predictions_of_the_run(tmp_path, capsys):
    rng = Random(0)
    (tmp_path / "words.conllu").write_text("\n".join(conllu(rng) for _ in range(12)))
    words = ["data=conllu", f"data.path={tmp_path}/words.conllu", "model.hidden_size=8"]
    run = train(tmp_path / "run", *words, "trainer.max_epochs=1", "model.run=eager")
    module = example("spacy_component")
    spacy.language.Language.component("heads", func=parse)
    nlp = spacy.blank("en")
    nlp.add_pipe("heads")
    nlp.to_disk(tmp_path / "pipeline")
    capsys.readouterr()
    module.main([str(run), " . ".join(SENTENCES), "--pipeline", f"{tmp_path}/pipeline"])
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [word for word, _ in printed] == " ".join(SENTENCES).split()

    model = graphfold.load(run)
    sentences = [
        "\n".join(
            f"{i}\t{word}\t_\t_\t_\t_\t{0 if head == i - 1 else head + 1}\tdep\t_\t_"
            for i, (word, head) in enumerate(zip(text.split(), heads, strict=True), 1)
        )
        for text, heads in SENTENCES.items()
    ]
    expected = [node["prediction"] for a in model.predict(sentences) for node in a["nodes"]]
    assert [prediction for _, prediction in printed] == expected
