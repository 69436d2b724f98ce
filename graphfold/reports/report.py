"""report.html: what a run learnt, in one page that needs no other file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape

from graphfold.datasets.data_module import DataModule
from graphfold.files import write_text
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.reports.figures import draw_curves, draw_predictions
from graphfold.reports.worst_examples import draw_worst
from graphfold.training.console import (
    MOST_CLASSES,
    by_part,
    describe_data,
    describe_positive,
    format_confusion,
    format_value,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import Metrics, class_metrics, confusion_counts

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; background: #f7fafc; margin: 0; }
main { max-width: 960px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; }
p.note, figcaption { color: #4a5568; font-size: 13px; } p.note { margin: 0 0 16px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile, .card, figure { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; }
.tile { padding: 12px 18px; min-width: 120px; } .tile b { display: block; font-size: 24px; }
.card { padding: 14px 18px; overflow-x: auto; } .card > svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; } td, th { padding: 3px 22px 3px 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { color: #4a5568; font-weight: 600; }
td { font-variant-numeric: tabular-nums; border-top: 1px solid #edf2f7; }
.confusion td, .confusion th { padding: 2px 8px; text-align: right; }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(280px, 1fr)); gap: 12px; }
.worst.wide { grid-template-columns: 1fr; }
figure { margin: 0; padding: 12px 14px; overflow-x: auto; } figcaption { margin-top: 6px; }
svg.tree { max-width: 100%; height: auto; }
pre { font: 12.5px/1.45 ui-monospace, monospace; margin: 0; white-space: pre-wrap; }
summary { cursor: pointer; font-weight: 600; }
"""


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
        metrics: what metrics.json holds.
        history: the metrics of each epoch.
    """
    config = trained.config
    name = str(config.name)
    parts = [
        _head(name, trained, history),
        _tiles(str(config.monitor), metrics),
        _section("Curves", _card(draw_curves(history, str(config.monitor)))),
        _section("Metrics of the best checkpoint", _table_of(by_part(metrics))),
        *_positive(trained, data),
        *(_of_test(trained, data, rows["test"]) if "test" in rows else ()),
        _section("Data", _card(f"<pre>{escape(describe_data(data))}</pre>")),
        _folded("Config", config.to_yaml()),
        _folded("Versions", json.dumps(trained.checkpoint.versions, indent=2)),
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )
    write_text(folder.report, page)


def _positive(trained: TrainedModel, data: DataModule) -> Iterator[str]:
    """The classes that metrics of yes or no are about."""
    told = describe_positive(trained.head)
    if told is not None:
        yield f"<p class='note'>{escape(told)}</p>"


def _of_test(trained: TrainedModel, data: DataModule, rows: EvalRows) -> Iterator[str]:
    """The sections about the test part."""
    head = trained.head
    figure = draw_predictions(head, rows)
    if figure:
        yield _section("Predictions on test", _card(figure))
    if head.confusion(rows.prediction, rows.target):
        yield _section("Classes of test", _table_of(class_metrics(head, rows)))
        for target, counts in confusion_counts(head, rows).items():
            title = f"{target} of test: true classes in rows, predicted ones in columns"
            yield _section(title, _confusion(counts))
    worst = draw_worst(trained, data, rows)
    if worst:
        yield _section("Worst examples", worst)


def _head(name: str, trained: TrainedModel, history: list[Metrics]) -> str:
    count = sum(p.numel() for p in trained.model.parameters())
    epochs = trained.checkpoint.best_epochs
    lengths = [sum(row.get("member", 1) == n for row in history) for n in range(1, len(epochs) + 1)]
    best = ", ".join(f"{epoch} of {of}" for epoch, of in zip(epochs, lengths, strict=True))
    members = f"{len(epochs)} members · " if len(epochs) > 1 else ""
    facts = f"{members}{count:,} parameters · best epoch {best}"
    if trained.calibration is not None:
        facts += f" · {trained.calibration.description}"
    seed = trained.config.seed
    return f"<h1>{escape(name)}</h1><p class='note'>{escape(facts)} · seed {seed}</p>"


def _tiles(monitor: str, metrics: Metrics) -> str:
    name = monitor.partition("/")[2]
    keys = [key for key in (f"val/{name}", f"test/{name}") if key in metrics]
    tiles = [
        f'<div class="tile"><b>{format_value(metrics[key], 4)}</b>{escape(key)}</div>'
        for key in keys
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}"


def _card(content: str) -> str:
    return f'<div class="card">{content}</div>'


def _folded(title: str, text: str) -> str:
    return (
        f'<h2></h2><details class="card"><summary>{escape(title)}</summary>'
        f"<pre>{escape(text)}</pre></details>"
    )


def _confusion(counts: Mapping[str, Metrics]) -> str:
    """A table whose right predictions are dark; of many classes, the most frequent mistakes."""
    if len(counts) > MOST_CLASSES:
        return _card(f"<pre>{escape(format_confusion(counts))}</pre>")
    totals = {true: sum(column[true] or 0 for column in counts.values()) for true in counts}
    lines = [f"<tr><th></th>{''.join(f'<th>{escape(name)}</th>' for name in counts)}</tr>"]
    for true in counts:
        cells = []
        for predicted in counts:
            count = counts[predicted][true] or 0
            share, colour = count / max(totals[true], 1), "47, 127, 184"
            if predicted != true:
                colour = "214, 69, 61"
            style = f"background: rgba({colour}, {0.75 * share:.2f})"
            cells.append(f'<td style="{style}">{format_value(count)}</td>')
        lines.append(f"<tr><th>{escape(true)}</th>{''.join(cells)}</tr>")
    return _card(f'<table class="confusion">{"".join(lines)}</table>')


def _table_of(columns: Mapping[str, Metrics]) -> str:
    """A column for each part or score, a row for each metric or class."""
    names = dict.fromkeys(name for values in columns.values() for name in values)
    lines = [f"<tr><th></th>{''.join(f'<th>{column}</th>' for column in columns)}</tr>"]
    for name in names:
        values = [columns[column].get(name) for column in columns]
        cells = "".join(f"<td>{format_value(value)}</td>" for value in values)
        lines.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    return _card(f"<table>{''.join(lines)}</table>")
