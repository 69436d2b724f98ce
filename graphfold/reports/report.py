"""report.html: the results of a run in one page that needs no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graphfold.datasets.data_module import DataModule
from graphfold.files import write_text
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.pages import page_template
from graphfold.reports.figures import draw_curves, draw_predictions
from graphfold.reports.worst_examples import draw_worst
from graphfold.training.console import (
    by_part,
    describe_data,
    describe_positive,
    format_confusion,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import Metrics, class_metrics, confusion_counts


def write_report(
    folder: RunFolder,
    trained: TrainedModel,
    data: DataModule,
    rows: Mapping[str, EvalRows],
    metrics: Metrics,
    history: list[Metrics],
) -> None:
    """Writes report.html.

    Args:
        folder: the run folder.
        trained: the best checkpoint.
        data: the data of the run.
        rows: part -> its predictions and targets.
        metrics: the content of metrics.json.
        history: the metrics of each epoch.
    """
    config, head = trained.config, trained.head
    positive = describe_positive(head)
    facts: dict[str, Any] = {
        "name": str(config.name),
        "facts": _describe_run(trained, history),
        "metrics": by_part(metrics),
        "notes": [] if positive is None else [positive],
        "curves": draw_curves(history, str(config.monitor)),
        "data": describe_data(data),
        "folded": {
            "Config": config.to_yaml(),
            "Versions": json.dumps(trained.checkpoint.versions, indent=2),
        },
    }
    if "test" in rows:
        facts["predictions"] = draw_predictions(head, rows["test"])
        facts["worst"] = draw_worst(trained, data, rows["test"])
        if head.confusion(rows["test"].prediction, rows["test"].target):
            facts["classes"] = class_metrics(head, rows["test"])
            if facts["predictions"] is None:  # too many classes for a picture
                tables = confusion_counts(head, rows["test"]).values()
                facts["mistakes"] = "\n".join(map(format_confusion, tables))
    write_text(folder.report, page_template("report.html").render(facts) + "\n")


def _describe_run(trained: TrainedModel, history: list[Metrics]) -> str:
    count = sum(p.numel() for p in trained.model.parameters())
    epochs = trained.checkpoint.best_epochs
    lengths = [sum(row.get("member", 1) == n for row in history) for n in range(1, len(epochs) + 1)]
    best = ", ".join(f"{epoch} of {of}" for epoch, of in zip(epochs, lengths, strict=True))
    facts = [f"{len(epochs)} members"] if len(epochs) > 1 else []
    facts += [f"{count:,} parameters", f"best epoch {best}"]
    if trained.calibration is not None:
        facts.append(trained.calibration.description)
    return " · ".join([*facts, f"seed {trained.config.seed}"])
