"""Answers: predictions or embeddings for the records of a file, counted while they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Answers(ABC):
    """The answers to the records of one file, in order and in constant memory.

    Args:
        predictor: the model.
        path: the file.

    Attributes:
        columns: the columns that are added to a table before `reason`, without values.
        good: how many records have an answer, so far.
        bad: how many have a reason.
    """

    doing: str
    columns: Sequence[NewColumn] = ()

    def __init__(self, predictor: Predictor, path: Path) -> None:
        self.predictor, self.path = predictor, path
        self.good = self.bad = 0

    def __iter__(self) -> Iterator[Answer]:
        for answer in shown(self._answers(), f"{self.doing} {self.path.name}"):
            self.bad += bool(answer.reason)
            self.good += not answer.reason
            yield answer

    @abstractmethod
    def _answers(self) -> Iterator[Answer]:
        """Yields the answers."""


class Predictions(Answers):
    """Predictions, and the contributions of the parts of each graph.

    Args:
        predictor: the model.
        path: the file.
        explainer: computes contributions; None for predictions alone.
    """

    doing = "predicting"

    def __init__(
        self, predictor: Predictor, path: Path, explainer: Explainer | None = None
    ) -> None:
        super().__init__(predictor, path)
        self.explainer = explainer
        self.columns = predictor.prediction_columns()
        if explainer is not None:
            self.columns += [NewColumn(name, str) for name in explainer.columns]

    def _answers(self) -> Iterator[Answer]:
        explained = len(self.explainer.columns) if self.explainer is not None else 0
        count = len(self.columns) - explained
        for record, answer in self.predictor.walk(self.path, self._explained):
            if isinstance(answer, Unread):
                answer = as_prediction(answer), None
            prediction, contributions = answer
            cells = [*prediction.cells(count), *[None] * explained]
            if prediction.reason:
                contributions = None
            if self.explainer is not None and contributions is not None:
                cells[count:] = self.explainer.cells(contributions)
            yield Answer(record, prediction.reason, cells, prediction, contributions)

    def _explained(self, dag: TypedDAG) -> Iterable[tuple[Prediction, Contributions | None]]:
        if self.explainer is not None:
            return zip(self.predictor.predict_graphs(dag), self.explainer.explain(dag), strict=True)
        return ((prediction, None) for prediction in self.predictor.described(dag))


_NOT_FINITE = "the model computes no finite embedding for this record"


class Embeddings(Answers):
    """Embeddings: the vectors of the graphs that the head of the model reads."""

    doing = "embedding"

    def _answers(self) -> Iterator[Answer]:
        """Yields no answer before the first embedding, which has the width."""
        answers, waiting = self._embedded(), list[Answer]()
        for answer in answers:
            waiting.append(answer)
            if answer.vector is not None:
                numbers = range(len(answer.vector))
                self.columns = [NewColumn(f"embedding_{number}", float) for number in numbers]
                break
        for answer in chain(waiting, answers):
            missing = [None] * len(self.columns)
            yield answer if answer.vector is not None else answer._replace(cells=missing)

    def _embedded(self) -> Iterator[Answer]:
        for record, vector in self.predictor.walk(self.path, self.predictor.embed_graphs):
            if isinstance(vector, Unread):
                yield Answer(record, vector.reason, ())
            elif not vector.isfinite().all():
                yield Answer(record, _NOT_FINITE, ())
            else:
                yield Answer(record, "", seven_digits(vector), vector=vector)
