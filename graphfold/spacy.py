"""A component of spaCy pipelines: what a trained run says of each sentence and of its words.

    nlp.add_pipe("graphfold", config={"run": "runs/tagger"}, last=True)
    doc = nlp("She sees him.")
    doc._.graphfold  # for each sentence, what graphfold.load(RUN).predict gives for it
    doc[0]._.graphfold  # of a run on nodes, what it says of the word

spaCy finds the component where graphfold is installed; nothing has to be imported. The run reads
sentences with heads (CoNLL-U), which a parser has to find before, or with constituents (brackets),
which benepar has to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from graphfold.errors import ConfigError, DataError
from graphfold.inference.predictor import Predictor, load

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token
except ImportError as error:
    raise ImportError(
        f"graphfold.spacy needs spaCy ({error}). Install it: pip install 'graphfold[spacy]'"
    ) from error

#: The attribute of documents, sentences and words: `doc._.graphfold`.
ATTRIBUTE = "graphfold"


class SpacyComponent:
    """Predicts the sentences of documents, many at once in `nlp.pipe`.

    Args:
        model: the trained model.

    Raises:
        ConfigError: if the run reads neither dependency trees nor constituents.
    """

    def __init__(self, model: Predictor) -> None:
        self.model = model
        for kind in (Span, Token):
            if not kind.has_extension(ATTRIBUTE):
                kind.set_extension(ATTRIBUTE, default=None)
        if not Doc.has_extension(ATTRIBUTE):
            Doc.set_extension(ATTRIBUTE, getter=_of_sentences)

    def __call__(self, doc: Any) -> Any:
        """The document, with predictions for its sentences.

        Raises:
            DataError: if nothing before has found sentences.
        """
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Any], batch_size: int = 64) -> Iterator[Any]:
        """The documents, in order; the sentences of `batch_size` of them are predicted together.

        Raises:
            DataError: if nothing before has found sentences.
        """
        docs = iter(stream)
        while batch := list(islice(docs, batch_size)):
            sentences = [sentence for doc in batch for sentence in _sentences(doc)]
            for sentence, answer in zip(sentences, self.model.predict(sentences), strict=True):
                _keep(sentence, answer)
            yield from batch


def make_component(nlp: Any, name: str, run: str, trust: Sequence[str] = ()) -> SpacyComponent:
    """The component of a pipeline, as its config says; spaCy calls it.

    Args:
        nlp: the pipeline.
        name: what it is called there.
        run: a run folder or a checkpoint.
        trust: third-party packages that may be imported.

    Raises:
        CheckpointError: if the run cannot be read or trusted.
        ConfigError: if there is none.
    """
    if not run:
        raise ConfigError(
            f"the component '{name}' names no run. Write nlp.add_pipe('graphfold', "
            "config={'run': FOLDER})."
        )
    return SpacyComponent(load(run, trust))


Language.factory("graphfold", default_config={"run": "", "trust": []}, assigns=["doc._.graphfold"])(
    make_component
)


def _sentences(doc: Any) -> Iterator[Any]:
    if not len(doc):
        return iter(())
    if not doc.has_annotation("SENT_START"):
        raise DataError(
            "the text has no sentences. Add a component that finds them before 'graphfold', such "
            "as a parser."
        )
    sentences: Iterator[Any] = doc.sents
    return sentences


def _keep(sentence: Any, answer: dict[str, Any]) -> None:
    """Notes an answer at its sentence, and what it says of words at them."""
    answer.pop("line")
    sentence._.set(ATTRIBUTE, answer)
    words = [token for token in sentence if not token.is_space]
    told: list[Mapping[str, Any]] = [
        node for node in answer.get("nodes", ()) if node["type"] == "word"
    ]
    if len(told) == len(words):
        for token, node in zip(words, told, strict=True):
            token._.set(ATTRIBUTE, node)


def _of_sentences(doc: Any) -> list[dict[str, Any]]:
    return [sentence._.get(ATTRIBUTE) for sentence in _sentences(doc)]
