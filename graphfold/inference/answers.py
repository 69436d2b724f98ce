"""Answers: predictions or embeddings for the records of a file, counted while they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Record
from graphfold.inference.explain import Contributions, Explainer
from graphfold.inference.frames import NewColumn
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor, Unread, as_prediction
from graphfold.layers.heads.output_column import seven_digits
from graphfold.progress import shown

_NOT_FINITE = "the model computes no finite embedding for this record"


class Answer(NamedTuple):
    """The answer to one record.

    Args:
        record: the record.
        reason: the reason for the lack of an answer; empty if there is one.
        cells: the cells of the columns that are added to a table; None for missing ones.
        prediction: the prediction; None for an embedding.
        contributions: the contributions of its parts; None without an explainer.
        vector: [width] float32 the embedding; None for a prediction.
    """

    record: Record
    reason: str
    cells: Sequence[Any]
    prediction: Prediction | None = None
    contributions: Contributions | None = None
    vector: Tensor | None = None


class Answers:
    """The answers to the records of one file, in order and in constant memory.

    Args:
        predictor: the model.
        path: the file.
        embeddings: the vectors that the head of the model reads, in place of predictions.
        explain: also the contributions of the parts of each graph to its prediction.

    Attributes:
        columns: the columns that are added to a table before `reason`, without values.
        good: how many records have an answer, so far.
        bad: how many have a reason.
    """

    def __init__(
        self, predictor: Predictor, path: Path, embeddings: bool = False, explain: bool = False
    ) -> None:
        self.predictor, self.path, self.embeddings = predictor, path, embeddings
        self.columns = [] if embeddings else predictor.prediction_columns()
        self.explainer: Explainer | None = None
        if explain and not embeddings:
            self.explainer = Explainer(predictor.trained)
            self.columns += [NewColumn(name, str) for name in self.explainer.columns]
        self.good = self.bad = 0

    def __iter__(self) -> Iterator[Answer]:
        answers, doing = self._predictions(), "predicting"
        if self.embeddings:
            answers, doing = self._with_columns(self._embeddings()), "embedding"
        for answer in shown(answers, f"{doing} {self.path.name}"):
            self.bad += bool(answer.reason)
            self.good += not answer.reason
            yield answer

    def _predictions(self) -> Iterator[Answer]:
        explained = 0 if self.explainer is None else len(self.explainer.columns)
        count = len(self.columns) - explained
        for record, answer in self.predictor.walk(self.path, self._explained):
            if isinstance(answer, Unread):
                answer = as_prediction(answer), None
            prediction, contributions = answer
            cells = [*prediction.cells(count), *[None] * explained]
            if prediction.reason:
                contributions = None
            if contributions is not None:
                cells[count:] = contributions.cells()
            yield Answer(record, prediction.reason, cells, prediction, contributions)

    def _explained(self, dag: TypedDAG) -> Iterable[tuple[Prediction, Contributions | None]]:
        if self.explainer is not None:
            return zip(self.predictor.predict_graphs(dag), self.explainer.explain(dag), strict=True)
        return ((prediction, None) for prediction in self.predictor.described(dag))

    def _embeddings(self) -> Iterator[Answer]:
        for record, vector in self.predictor.walk(self.path, self.predictor.embed_graphs):
            if isinstance(vector, Unread):
                yield Answer(record, vector.reason, ())
            elif not vector.isfinite().all():
                yield Answer(record, _NOT_FINITE, ())
            else:
                yield Answer(record, "", seven_digits(vector), vector=vector)

    def _with_columns(self, answers: Iterator[Answer]) -> Iterator[Answer]:
        """All answers; none is yielded before the first embedding, which has the width."""
        waiting = list[Answer]()
        for answer in answers:
            waiting.append(answer)
            if answer.vector is not None:
                numbers = range(len(answer.vector))
                self.columns = [NewColumn(f"embedding_{number}", float) for number in numbers]
                break
        for answer in chain(waiting, answers):
            missing = [None] * len(self.columns)
            yield answer if answer.vector is not None else answer._replace(cells=missing)
