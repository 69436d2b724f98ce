"""A component of spaCy: predictions of a trained run for the words of parsed sentences.

    pip install spacy && python -m spacy download en_core_web_sm
    python examples/spacy_component.py runs/tagger "The cat sleeps." --pipeline en_core_web_sm

The run reads CoNLL-U, such as that of `graphfold train data=conllu data.path=FILE`. In a program of
your own, import this file, then write nlp.add_pipe("graphfold", config={"run": "runs/tagger"}).
"""

from __future__ import annotations

import argparse
import re

import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span, Token

import graphfold

Token.set_extension("graphfold", default=None, force=True)


@Language.factory("graphfold")
class GraphfoldComponent:
    """Sets `token._.graphfold` to what `graphfold.load(run).predict` gives for the word."""

    def __init__(self, nlp: Language, name: str, run: str) -> None:
        self.model = graphfold.load(run)

    def __call__(self, doc: Doc) -> Doc:
        sentences = list(doc.sents)
        answers = self.model.predict([conllu(sentence) for sentence in sentences])
        for sentence, answer in zip(sentences, answers, strict=True):
            for token, node in zip(sentence, answer.get("nodes", ()), strict=False):
                token._.graphfold = node
        return doc


def conllu(sentence: Span) -> str:
    """A parsed sentence in CoNLL-U, one line of ten columns for each token."""
    lines = []
    for number, token in enumerate(sentence, 1):
        is_root = token.head.i == token.i
        head = 0 if is_root else token.head.i - sentence.start + 1
        relation = "root" if is_root else token.dep_
        cells = [number, token.text, token.lemma_, token.pos_, token.tag_, token.morph]
        cells += [head, relation, "", ""]
        lines.append("\t".join(re.sub(r"\s", "_", str(cell)) or "_" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Prints each word of a text with its prediction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run folder or a checkpoint")
    parser.add_argument("text")
    parser.add_argument("--pipeline", default="en_core_web_sm", help="a pipeline that parses")
    args = parser.parse_args(arguments)
    nlp = spacy.load(args.pipeline)
    nlp.add_pipe("graphfold", config={"run": args.run})
    for token in nlp(args.text):
        print(token.text, token._.graphfold["prediction"], sep="\t")


if __name__ == "__main__":
    main()
