"""The worst examples of a report, drawn: molecules, or trees with a prediction in every node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.dag import TypedDAG, select
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.graph_hash import has_molecules
from graphfold.errors import ConfigError, RecordError
from graphfold.inference.drawing.drawing import draw_graph
from graphfold.inference.drawing.marks import shown
from graphfold.inference.explanation.explain import Explainer, draw
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor
from graphfold.layers import Head, Model
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.model import cells_as_they_are
from graphfold.training.run.trained import TrainedModel

#: How many are drawn, and how many words a tree that is drawn may have.
_COUNT, _MOST_WORDS = 8, 16


def draw_worst(trained: TrainedModel, data: DataModule, rows: EvalRows) -> str:
    """The records of the test part with the largest loss, as HTML; nothing if none can be drawn.

    Args:
        trained: the model.
        data: the data of the run.
        rows: predictions and targets of the test part.
    """
    numbers, losses = _largest_losses(data, rows)
    if not len(numbers):
        return ""
    raw = data.select(data.split.test[numbers])
    predictor = Predictor(trained, data=data)
    with cells_as_they_are(trained.model):
        predictions = predictor.predict_graphs(raw)
        targets = _worst_targets(predictor, raw)
    explained, note = _explain(predictor, raw, targets)
    figures = []
    for graph, loss in enumerate(losses.tolist()):
        dag = select(raw, [graph])
        try:
            drawing, caption = _draw(dag, predictions[graph], trained.head)
        except ConfigError as error:  # a system without what RDKit draws with
            return f'<p class="note">{escape(error.message)}</p>'
        if explained:
            drawing = explained[graph]
            caption += f" · coloured by {targets[graph]}" if len(trained.head.targets) > 1 else ""
        caption = escape(f"{caption} · loss {loss:.3g}")
        figures.append(f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>")
    kind, size = "worst", ""
    if not has_molecules(raw):
        kind, size = "worst wide", f" of at most {_MOST_WORDS} words"
        note = " A wrong class has a frame, and the right one stands beside it."
    note = f"The test records{size} with the largest loss.{note}"
    return f'<p class="note">{note}</p><div class="{kind}">{"".join(figures)}</div>'


def _worst_targets(predictor: Predictor, raw: TypedDAG) -> list[str]:
    """The target of each graph that has the largest part in its loss."""
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


def _explain(predictor: Predictor, raw: TypedDAG, targets: Sequence[str]) -> tuple[list[str], str]:
    """Molecules coloured by contributions, and a note of what they are; nothing of other graphs.

    Args:
        predictor: the model.
        raw: the graphs.
        targets: [num_graphs] the target of each graph that is explained.
    """
    if not has_molecules(raw):
        return [], ""
    try:
        explainer = Explainer(predictor, "integrated", [*dict.fromkeys(targets)])
        found = explainer.explain_graphs(raw)
        drawings = [draw(explainer, *pair) for pair in zip(found, targets, strict=True)]
    except (ConfigError, RecordError) as error:
        return [], escape(f" No contributions are shown: {error.message}")
    names = predictor.trained.head.targets
    raised = " or ".join(name for name in names if name in targets)
    if len(names) > 1:
        raised += " (the target with the largest part in the loss, which the caption names)"
    note = f" Blue atoms and bonds raise {raised}, orange ones lower it (integrated gradients)."
    return drawings, escape(note)


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


def _draw(dag: TypedDAG, prediction: Prediction, head: Head) -> tuple[str, str]:
    """One graph and the words under it."""
    measured = head.measured_values(head.target_rows(dag))
    file, line = dag.place(0)
    caption = f"{file.rpartition('/')[2]}:{line}"
    if head.level == "graph":
        for target, told in prediction.targets.items():
            caption += f" · {target}: {shown(told.value)}"
            caption += f", measured {shown(measured[0].get(target, 'nothing'))}"
    target = head.targets[0]
    wanted = [shown(row[target]) if target in row else None for row in measured]
    return draw_graph(dag, prediction, head, wanted).svg, caption
