"""The worst examples of a report, drawn: molecules, or trees with a prediction in every node."""

from __future__ import annotations

from html import escape

import torch
from torch import Tensor

from graphfold.dag import TypedDAG, select
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.inspection.graph_hash import has_molecules
from graphfold.errors import ConfigError, RecordError
from graphfold.inference.drawing.drawing import draw_graph
from graphfold.inference.drawing.marks import shown
from graphfold.inference.explanation.explain import Explainer, draw
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor
from graphfold.layers import Head
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
        explained, note = _explain(predictor, raw)
    figures = []
    for graph, loss in enumerate(losses.tolist()):
        dag = select(raw, [graph])
        try:
            drawing, caption = _draw(dag, predictions[graph], trained.head)
        except ConfigError as error:  # a system without what RDKit draws with
            return f'<p class="note">{escape(error.message)}</p>'
        if explained:
            drawing = explained[graph]
        caption = escape(f"{caption} · loss {loss:.3g}")
        figures.append(f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>")
    kind, size = "worst", ""
    if not has_molecules(raw):
        kind, size = "worst wide", f" of at most {_MOST_WORDS} words"
        note = " A wrong class has a frame, and the right one stands beside it."
    note = f"The test records{size} with the largest loss.{note}"
    return f'<p class="note">{note}</p><div class="{kind}">{"".join(figures)}</div>'


def _explain(predictor: Predictor, raw: TypedDAG) -> tuple[list[str], str]:
    """Molecules coloured by contributions, and a note of what they are; nothing of other graphs."""
    if not has_molecules(raw):
        return [], ""
    try:
        target = predictor.trained.head.targets[0]
        explainer = Explainer(predictor, "integrated", [target])
        found = explainer.explain_graphs(raw)
        drawings = [draw(explainer, contributions, target) for contributions in found]
    except (ConfigError, RecordError) as error:
        return [], escape(f" No contributions are shown: {error.message}")
    note = f" Blue atoms and bonds raise {target}, orange ones lower it (integrated gradients)."
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
