"""The worst examples of a report, drawn: molecules, or trees with a prediction in every node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.graph_hash import has_molecules
from graphfold.errors import ConfigError
from graphfold.inference.pictures import draw_graphs, shown
from graphfold.inference.predictor import Predictor
from graphfold.layers import Model
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.model import eager_cells
from graphfold.training.run.trained import TrainedModel

#: The number of examples, and the most words of a tree that is drawn.
_COUNT, _MOST_WORDS = 8, 16


class WorstExamples(NamedTuple):
    """Pictures of the records with the largest loss.

    Args:
        note: a description of the records.
        figures: the SVG and the caption of each.
        width: the least width of a picture, in pixels.
    """

    note: str
    figures: Sequence[tuple[str, str]]
    width: int


def draw_worst(trained: TrainedModel, data: DataModule, rows: EvalRows) -> WorstExamples | None:
    """The records of the test part with the largest loss; None if none can be drawn.

    Args:
        trained: the model.
        data: the data of the run.
        rows: predictions and targets of the test part.
    """
    numbers, losses = _largest_losses(data, rows)
    if not len(numbers):
        return None
    raw = data.select(data.split.test[numbers])
    predictor, head = Predictor(trained, data=data), trained.head
    with eager_cells(trained.model):
        targets = _worst_targets(predictor, raw)
        try:
            predictions = predictor.predict_graphs(raw)
            drawn = list(draw_graphs(trained, raw, predictions, targets, has_targets=True))
        except ConfigError as error:  # a system without what RDKit draws with
            return WorstExamples(error.message, [], 1)
    measured = head.measured_values(head.target_rows(raw)) if head.level == "graph" else []
    figures = []
    for graph, (prediction, drawing) in enumerate(zip(predictions, drawn, strict=True)):
        if drawing is not None:
            file, line = raw.place(graph)
            caption = [f"{file.rpartition('/')[2]}:{line}"]
            for target, predicted in prediction.targets.items() if measured else ():
                value = shown(measured[graph].get(target, "nothing"))
                caption.append(f"{target}: {shown(predicted.value)}, measured {value}")
            if drawing.target is not None and len(head.targets) > 1:
                caption.append(f"coloured by {drawing.target}")
            figures.append((drawing.svg, " · ".join([*caption, f"loss {losses[graph]:.3g}"])))
    if not has_molecules(raw):
        note = (
            f"The test records of at most {_MOST_WORDS} words with the largest loss. A wrong class "
            "has a frame, and the right one is behind ≠."
        )
        return WorstExamples(note, figures, 900)
    note = "The test records with the largest loss."
    coloured = {drawing.target for drawing in drawn if drawing is not None} - {None}
    if coloured:
        names = " or ".join(name for name in head.targets if name in coloured)
        note += f" Blue atoms raise {names}, orange ones lower it (integrated gradients)."
    return WorstExamples(note, figures, 280)


def _worst_targets(predictor: Predictor, raw: TypedDAG) -> list[str]:
    """The target of each graph with the largest share of its loss."""
    names = predictor.trained.head.targets
    if len(names) == 1:
        return [*names] * raw.num_graphs
    model = predictor.trained.model
    with torch.no_grad():
        parts = predictor.compute(predictor.plan(raw), lambda batch: _target_losses(model, batch))
    return [names[number] for number in torch.cat([*parts]).argmax(1).tolist()]


def _target_losses(model: Model, batch: Batch) -> Tensor:
    """[num_graphs, num_targets] the loss of each graph if one target alone were measured."""
    outputs, head = model(batch), model.head
    measured, graph = head.target_rows(batch.dag), head.row_graph(batch.dag)
    losses = []
    for number in range(len(head.targets)):
        alone = torch.full_like(measured, math.nan)
        alone[:, number] = measured[:, number]
        of_rows = model.losses(outputs, alone)
        losses.append(of_rows.new_zeros(batch.num_graphs).index_add_(0, graph, of_rows))
    return torch.stack(losses, 1)


def _largest_losses(data: DataModule, rows: EvalRows) -> tuple[Tensor, Tensor]:
    """Positions in the test part, and losses, of the worst records that can be drawn."""
    total = torch.zeros(rows.num_graphs).index_add_(0, rows.graph, rows.loss.float())
    total[_num_words(data)[data.split.test] > _MOST_WORDS] = 0.0
    losses, numbers = total.topk(min(_COUNT, rows.num_graphs))
    return numbers[losses > 0], losses[losses > 0]


def _num_words(data: DataModule) -> Tensor:
    """[num_records] how many nodes of each record have a word."""
    facts = data.facts
    count = torch.zeros(facts.num_graphs, dtype=torch.int64)
    for node_type in facts.schema.types:
        if (f"type:{node_type.name}", "form") in facts.dictionaries:
            count += data.num_rows(f"type:{node_type.name}")
    return count
