"""Answers: what a model gives for each record of a file, counted while they are written."""

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
        reason: why there is none; empty if there is one.
        cells: those of the columns that are added to a table; None for missing ones.
        prediction: the prediction, unless embeddings are asked for.
        contributions: those of its parts, if they are asked for.
        vector: [width] float32 its embedding, if that is asked for.
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
        columns: the columns that are added to a table, but for `reason`, without values.
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
            if answer.reason:
                self.bad += 1
            else:
                self.good += 1
            yield answer

    @abstractmethod
    def _answers(self) -> Iterator[Answer]:
        """The answers, not yet counted."""


class Predictions(Answers):
    """Predictions, and what the parts of each graph contribute.

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
        self._count = len(self.columns)
        if explainer is not None:
            self.columns += [NewColumn(name, str) for name in explainer.columns]

    def _answers(self) -> Iterator[Answer]:
        for record, found in self.predictor.walk(self.path, self._explained):
            if isinstance(found, Unread):
                found = as_prediction(found), None
            prediction, contributions = found
            if prediction.reason:
                contributions = None
            cells = [*prediction.cells(self._count), *self._explained_cells(contributions)]
            yield Answer(record, prediction.reason, cells, prediction, contributions)

    def _explained(self, dag: TypedDAG) -> Iterable[tuple[Prediction, Contributions | None]]:
        if self.explainer is not None:
            return zip(self.predictor.predict_graphs(dag), self.explainer.explain(dag), strict=True)
        return ((prediction, None) for prediction in self.predictor.described(dag))

    def _explained_cells(self, found: Contributions | None) -> Sequence[Any]:
        if self.explainer is None or found is None:
            return [None] * (len(self.columns) - self._count)
        return list(self.explainer.cells(found))


_NOT_FINITE = "the model computes no finite embedding for this record"


class Embeddings(Answers):
    """Embeddings: the vector of each graph that the head of the model reads."""

    doing = "embedding"

    def _answers(self) -> Iterator[Answer]:
        """The width is that of the first embedding; the records before it wait."""
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
        for record, found in self.predictor.walk(self.path, self.predictor.embed_graphs):
            if isinstance(found, Unread):
                yield Answer(record, found.reason, ())
            elif not found.isfinite().all():
                yield Answer(record, _NOT_FINITE, ())
            else:
                yield Answer(record, "", seven_digits(found), vector=found)
